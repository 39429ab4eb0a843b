"""`shoal resume`: have a running `shoal up` decide again."""

from shoal.cli.client import Api
from shoal.cli.on_socket import asked
from shoal.cli.where import DEFAULT_WHERE, Where, socket_of
from shoal.texts.screens import screen_text


def resume(*, where: Where = DEFAULT_WHERE) -> None:
    """Have Shoal decide again after a release, and evict again after evictions were frozen.

    Who resumed is recorded.
    """
    path = socket_of(
        where,
        "after a release label the namespaces shoal.dev/mode=manage again; where evictions are"
        " frozen POST /evictions/resume?by=NAME to the scheduler",
    )
    came = asked(lambda: Api(path, where.language.value).post("/resume"))
    print(screen_text("resumed", where.language))
    if came["evictions_resumed"]:
        print(screen_text("evictions-resumed", where.language))
