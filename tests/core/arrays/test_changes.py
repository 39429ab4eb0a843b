"""The log of changed rows: what a reader gets that is a little, or far too far, behind."""

from shoal.core.arrays.changes import ChangeLog


def since(log: ChangeLog, position: int) -> list[int] | None:
    """The rows as a list."""
    rows = log.since(position)
    return None if rows is None else rows.tolist()


def test_every_reader_gets_what_is_new_to_it() -> None:
    """Also where the log has gone round, up to all that it remembers."""
    log = ChangeLog(capacity=4)
    for row in range(11):
        log.add(row)
        for behind in range(5):
            expected = list(range(max(0, row + 1 - behind), row + 1))
            assert since(log, max(0, log.head - behind)) == expected
        assert since(log, log.head - 5) is None


def test_a_repetition_is_one_change_until_somebody_has_read_it() -> None:
    """Then it is another one."""
    log = ChangeLog()
    log.add(7)
    log.add(7)
    assert log.head == 1
    read = log.read()
    log.add(7)
    log.add(7)
    assert since(log, read) == [7]
    log.add(8)
    log.add(7)
    assert since(log, read) == [7, 8, 7]


def test_what_is_handed_out_does_not_change() -> None:
    """The log goes on while a reader still looks at its rows."""
    log = ChangeLog(capacity=2)
    log.add(1)
    rows = log.since(0)
    log.add(2)
    log.add(3)
    assert rows is not None
    assert rows.tolist() == [1]
