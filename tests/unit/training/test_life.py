"""Where a replica's state is fetched from."""

from __future__ import annotations

import msgspec

from training import announce
from training.life import heal_host

WORKER = announce.Worker(
    name="replica-0", incarnation=1, fresh=True, monarch="m", host="its-name", data_interface="lo", doors=[],
    events="e", scratch="s", controller="c",
)  # fmt: skip


def test_a_state_is_fetched_over_the_data_interface_unless_it_has_no_address_or_the_other_is_asked_for() -> None:
    assert heal_host(WORKER, "data") == "127.0.0.1"
    assert heal_host(WORKER, "control") == "its-name"
    assert heal_host(msgspec.structs.replace(WORKER, data_interface="none"), "data") == "its-name"
