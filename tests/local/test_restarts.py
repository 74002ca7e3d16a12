"""When a member is started again."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from chaos.model.topology import Restart
from chaos.platforms.local.restarts import BACKOFF_FIRST_S, BACKOFF_S_MAX, LIFE_SHORT_S, SHORT_LIVES_MAX, Restarts


def test_the_wait_doubles_with_each_short_life_until_the_member_is_given_up() -> None:
    restarts = Restarts(Restart.ALWAYS)
    waits = [restarts.after(1.0, deleted=False) for _ in range(SHORT_LIVES_MAX + 1)]
    assert waits[:4] == [0.0, BACKOFF_FIRST_S, 2 * BACKOFF_FIRST_S, 4 * BACKOFF_FIRST_S]
    assert waits[-2:] == [BACKOFF_S_MAX, None]


@given(st.lists(st.tuples(st.floats(0, 2 * LIFE_SHORT_S), st.booleans()), max_size=60))
def test_waits_are_bounded_and_free_after_a_long_life_or_a_deletion(lives: list[tuple[float, bool]]) -> None:
    always, never = Restarts(Restart.ALWAYS), Restarts(Restart.NEVER)
    for lived_s, deleted in lives:
        wait_s = always.after(lived_s, deleted)
        assert never.after(lived_s, deleted) is None
        if deleted or lived_s >= LIFE_SHORT_S:
            assert wait_s == 0.0
        assert wait_s is None or 0.0 <= wait_s <= BACKOFF_S_MAX
