"""Every pass that is planned is one that a profile allows, and together they are the request."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from specdec.engines.package.build_record import TensorRTEntry
from specdec.engines.tensorrt.passes import Pass, plan_passes


def entry(*profiles: tuple[int, int, int, int]) -> TensorRTEntry:
    return TensorRTEntry(
        version="1.7",
        compute_capabilities=("8.9",),
        profiles=tuple(profile[:3] for profile in profiles),
        scored_rows=tuple(profile[3] for profile in profiles),
        precisions={},
        build_seconds=1.0,
    )


TARGET = entry((1, 5, 33, 33), (1, 256, 256, 1))
DRAFT = entry((1, 1, 1, 1), (1, 2, 33, 33), (1, 256, 256, 1))


def test_common_requests_are_one_pass_of_the_narrowest_profile() -> None:
    assert plan_passes(TARGET, 1, 1) == [Pass(0, 1, 1)]
    assert plan_passes(TARGET, 9, 9) == [Pass(0, 9, 9)]
    assert plan_passes(TARGET, 200, 0) == [Pass(1, 200, 0)]
    assert plan_passes(TARGET, 200, 1) == [Pass(1, 200, 1)]
    assert plan_passes(DRAFT, 1, 1) == [Pass(0, 1, 1)]
    assert plan_passes(DRAFT, 2, 1) == [Pass(1, 2, 1)]


def test_more_than_a_profile_takes_is_cut() -> None:
    assert plan_passes(TARGET, 600, 1) == [
        Pass(1, 256, 0), Pass(1, 256, 0), Pass(1, 87, 0), Pass(0, 1, 1),
    ]  # fmt: skip
    assert plan_passes(TARGET, 80, 70) == [
        Pass(0, 10, 0), Pass(0, 33, 33), Pass(0, 33, 33), Pass(0, 4, 4),
    ]  # fmt: skip


@given(st.data())
def test_any_request_is_covered(data: st.DataObject) -> None:
    others = data.draw(
        st.lists(
            st.lists(st.integers(1, 40), min_size=3, max_size=3).map(sorted)
            .flatmap(lambda p: st.integers(1, p[2]).map(lambda n: (*p, n))),
            max_size=3,
        )
    )  # fmt: skip
    built = entry((1, 1, data.draw(st.integers(1, 9)), 1), *others)
    rows = data.draw(st.integers(1, 120))
    scored = data.draw(st.integers(0, rows))
    passes = plan_passes(built, rows, scored)
    assert sum(p.rows for p in passes) == rows
    assert sum(p.scored for p in passes) == scored
    seen = 0
    for step in passes:
        lowest, _, highest = built.profiles[step.profile]
        assert lowest <= step.rows <= highest
        assert step.scored <= min(step.rows, built.scored_rows[step.profile])
        seen += step.rows
        # Scored rows are the last of their pass, and no silent row follows the first of them.
        assert step.scored in (0, step.rows) or len(passes) == 1
        assert seen <= rows - scored or step.scored or not scored
