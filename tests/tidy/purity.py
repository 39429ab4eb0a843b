"""What the rooms that decide must keep, so that equal inputs give equal decisions everywhere."""

import ast
import sys
from collections.abc import Iterator

# Of Python's own modules: clocks, chance, the machine, other processes, files, and logs.
_IMPURE = frozenset(
    """
    asyncio atexit builtins concurrent ctypes fcntl ftplib getpass glob http imaplib
    importlib io locale logging mmap multiprocessing os pathlib pickle platform poplib pty
    queue random readline resource runpy sched secrets select selectors shelve shutil
    signal site smtplib socket socketserver sqlite3 ssl subprocess sys syslog tempfile
    termios threading time traceback tracemalloc tty urllib uuid warnings xmlrpc
    zoneinfo
    """.split()
)
_CALLS = {
    "breakpoint": "stops the process",
    "hash": "of a text differs between processes",
    "id": "differs between processes",
    "input": "waits for a person",
    "open": "reads or writes a file",
    "print": "writes to the terminal",
}
_CLOCKS = frozenset({"now", "today", "utcnow"})
_KEYED = frozenset({"Philox"})

# What gives the same answer whatever order it is fed in.
_ORDER_FREE = frozenset({"all", "any", "frozenset", "len", "max", "min", "set", "sorted", "sum"})
_ORDERED = frozenset({"enumerate", "iter", "list", "map", "filter", "reversed", "tuple", "zip"})
_SET_TYPES = frozenset({"AbstractSet", "FrozenSet", "MutableSet", "Set", "frozenset", "set"})
_SET_METHODS = frozenset({"difference", "intersection", "symmetric_difference", "union"})


def imports(name: str, source: str, *, numpy: bool) -> list[str]:
    """A pure module imports pure modules of Python and of ours; in the core numpy as well."""
    allowed = (frozenset(sys.stdlib_module_names) - _IMPURE) | {"shoal"}
    if numpy:
        allowed |= {"numpy"}
    complaints = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            modules = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            modules = [node.module or "."]
        else:
            continue
        complaints += [
            f"{name}:{node.lineno}: '{module}' does not belong here; take what you need from it "
            "as an argument"
            for module in modules
            if module.split(".")[0] not in allowed
        ]
    return complaints


def calls(name: str, source: str) -> list[str]:
    """A pure module reads no clock, draws no lot and calls nothing outside."""
    complaints = []
    tree = ast.parse(source)
    own_hash = {
        call
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef) and function.name == "__hash__"
        for call in ast.walk(function)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            called = node.func.id
            if called in _CALLS and node not in own_hash:
                complaints.append(f"{name}:{node.lineno}: {called}() {_CALLS[called]}")
        elif isinstance(node, ast.Attribute):
            chain = ast.unparse(node)
            if node.attr in _CLOCKS and "date" in chain:
                complaints.append(f"{name}:{node.lineno}: {chain} reads a clock; take `now`")
            elif ast.unparse(node.value).endswith(".random") and node.attr not in _KEYED:
                complaints.append(
                    f"{name}:{node.lineno}: {chain} consumes chance; draw from a keyed Philox"
                )
    return complaints


def no_any(name: str, source: str) -> list[str]:
    """The core's types are known."""
    return [
        f"{name}:{node.lineno}: Any hides a type that the core must know"
        for node in ast.walk(ast.parse(source))
        if (isinstance(node, ast.Name) and node.id == "Any")
        or (isinstance(node, ast.Attribute) and node.attr == "Any")
    ]


def no_set_order(name: str, source: str) -> list[str]:
    """Nothing depends on the order of a set, which differs between processes."""
    tree = ast.parse(source)
    shared = _Sets.of_module(tree)
    scopes: list[tuple[_Sets, ast.AST]] = [(shared, tree)]
    scopes += [
        (shared.within(function), function)
        for function in ast.walk(tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    found = {
        (node.lineno, ast.unparse(node))
        for known, scope in scopes
        for node in _ordered_uses(scope)
        if known.is_set(node)
    }
    return [
        f"{name}:{line}: the order of '{what}' is the set's; sort it, or keep the members as keys "
        "of a dict"
        for line, what in sorted(found)
    ]


class _Sets:
    """Which names hold sets, as far as the text of one module shows.

    Attributes and functions are known by their last name throughout the module, as long as no class
    gives an attribute of that name another type; variables and parameters within their function.
    """

    def __init__(self, names: frozenset[str]) -> None:
        self._names = set(names)

    @classmethod
    def of_module(cls, tree: ast.Module) -> "_Sets":
        sets = cls(frozenset())
        others: set[str] = set()
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.returns and _says_set(node.returns):
                sets._names.add(f"{node.name}()")
            elif isinstance(node, ast.ClassDef):
                for field in node.body:
                    if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
                        group = sets._names if _says_set(field.annotation) else others
                        group.add(f".{field.target.id}")
            elif (
                isinstance(node, ast.AnnAssign)
                and isinstance(node.target, ast.Attribute)
                and _says_set(node.annotation)
            ):
                sets._names.add(_key(node.target))
        for node in ast.walk(tree):
            if isinstance(node, ast.Assign) and sets.is_set(node.value):
                sets._names.update(_key(t) for t in node.targets if isinstance(t, ast.Attribute))
        sets._names -= others
        sets._assign(tree.body)
        return sets

    def within(self, function: ast.FunctionDef | ast.AsyncFunctionDef) -> "_Sets":
        """What is known inside a function: this, its parameters and its variables."""
        sets = _Sets(frozenset(self._names))
        for node in ast.walk(function.args):
            if isinstance(node, ast.arg):
                if node.annotation and _says_set(node.annotation):
                    sets._names.add(node.arg)
                else:
                    sets._names.discard(node.arg)
        sets._assign([node for node in ast.walk(function) if isinstance(node, ast.stmt)])
        return sets

    def _assign(self, statements: list[ast.stmt]) -> None:
        for node in statements:
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                if _says_set(node.annotation):
                    self._names.add(node.target.id)
            elif isinstance(node, ast.Assign) and self.is_set(node.value):
                self._names.update(t.id for t in node.targets if isinstance(t, ast.Name))

    def is_set(self, node: ast.expr) -> bool:
        """Whether the expression is a set for certain."""
        if isinstance(node, ast.Set | ast.SetComp):
            return True
        if isinstance(node, ast.BinOp):
            combines = isinstance(node.op, ast.BitOr | ast.BitAnd | ast.Sub | ast.BitXor)
            return combines and (self.is_set(node.left) or self.is_set(node.right))
        if isinstance(node, ast.Call):
            called = _key(node.func).removeprefix(".")
            if called in {"set", "frozenset"} or f"{called}()" in self._names:
                return True
            of_a_set = isinstance(node.func, ast.Attribute) and self.is_set(node.func.value)
            return of_a_set and called in _SET_METHODS
        return _key(node) in self._names


def _key(node: ast.expr) -> str:
    """How a name is remembered: variables as they are, attributes with a dot before them."""
    if isinstance(node, ast.Name):
        return node.id
    return f".{node.attr}" if isinstance(node, ast.Attribute) else "?"


def _says_set(annotation: ast.expr) -> bool:
    outer = annotation.value if isinstance(annotation, ast.Subscript) else annotation
    return _key(outer).removeprefix(".") in _SET_TYPES


def _ordered_uses(scope: ast.AST) -> Iterator[ast.expr]:
    """Every expression whose iteration order may reach the result."""
    order_free: set[ast.AST] = set()
    for node in ast.walk(scope):
        if isinstance(node, ast.Call):
            called = _key(node.func)
            if called in _ORDER_FREE and not any(word.arg == "key" for word in node.keywords):
                order_free.update(node.args)
            elif called in _ORDERED | _ORDER_FREE | {".join", ".extend", ".fromkeys"}:
                yield from node.args
            elif called == ".pop" and not node.args and isinstance(node.func, ast.Attribute):
                yield node.func.value
        elif isinstance(node, ast.For | ast.AsyncFor):
            yield node.iter
        elif isinstance(node, ast.Starred):
            yield node.value
        elif isinstance(node, ast.ListComp | ast.DictComp) or (
            isinstance(node, ast.GeneratorExp) and node not in order_free
        ):
            yield from (generator.iter for generator in node.generators)
