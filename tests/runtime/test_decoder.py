"""The decoder's surface: prompts, options, one generation at a time, results."""

from __future__ import annotations

import gc
import json
import math
import threading

import numpy as np
import pytest

from specdec.runtime import (
    BusyError,
    ClosedError,
    InvalidParameterError,
    PromptError,
    SamplingParams,
    SpeculativeDecoder,
    UnsupportedOptionError,
)
from tests.support.decoders import pair
from tests.support.table_engine import TableEngine, random_table

PROMPT = [1, 2]


@pytest.mark.parametrize(
    ("prompt", "message"),
    [
        ([], "the prompt is empty"),
        ([1, 5], "token id 5; allowed is 0 .. 4"),
        ([-1], "token id -1; allowed is 0 .. 4"),
        ([1] * 65, "has 65 tokens and the context holds 64"),
        ("text", "no tokenizer"),
        ([{"role": "user", "content": "hi"}], "no chat template"),
        ([1, "a"], "item 1 of the prompt is 'a'"),
        ([True], "item 0 of the prompt is True"),
        ([1.0], "item 0 of the prompt is 1.0"),
        (7, "the prompt is int"),
        (b"ab", "the prompt is bytes"),
    ],
)
def test_prompts_that_are_refused(prompt: object, message: str) -> None:
    decoder, target, _ = pair()
    with pytest.raises(PromptError) as caught:
        decoder.generate(prompt)
    assert message in str(caught.value)
    assert target.calls == []
    assert len(decoder.generate(PROMPT).token_ids) > 0


def test_ids_may_be_numpy() -> None:
    decoder, _, _ = pair()
    assert decoder.generate(np.array(PROMPT)).token_ids == decoder.generate(PROMPT).token_ids


def test_truncate_prompt_keeps_the_end() -> None:
    decoder, _, _ = pair(max_length=10)
    params = SamplingParams(max_new_tokens=4, truncate_prompt="left")
    result = decoder.generate([0] * 20 + [1, 2, 3], params)
    assert result.prompt_token_ids == (0, 0, 0, 0, 1, 2, 3)
    assert result.finish_reason == "length"
    assert decoder.generate([1, 2, 3], params).prompt_token_ids == (1, 2, 3)
    much = SamplingParams(max_new_tokens=100, truncate_prompt="left")
    assert decoder.generate([0] * 20, much).stats.prompt_tokens == 5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_draft_tokens": 2}, "num_draft_tokens is 2 and this decoder has no drafter"),
        ({"draft_temperature": 0.5}, "draft_temperature is 0.5"),
        ({"stop": "x"}, "stop is ['x'] and this decoder has no tokenizer"),
    ],
)
def test_options_that_cannot_be_honoured(options: dict, message: str) -> None:
    decoder = SpeculativeDecoder(TableEngine(random_table(0, 5)), drafter="none")
    with pytest.raises(UnsupportedOptionError) as caught:
        decoder.generate(PROMPT, SamplingParams(**options))
    assert message in str(caught.value)
    result = decoder.generate(PROMPT)
    assert result.stats.drafted == 0
    assert result.stats.fallback is None


def test_pairs_that_do_not_fit() -> None:
    target, draft = TableEngine(random_table(0, 5)), TableEngine(random_table(0, 4), name="draft")
    with pytest.raises(InvalidParameterError, match="4 tokens and the target has 5"):
        SpeculativeDecoder(target, draft)
    with pytest.raises(InvalidParameterError, match="drafter is 'magic'"):
        SpeculativeDecoder(target, drafter="magic")
    with pytest.raises(InvalidParameterError, match="there is no draft model"):
        SpeculativeDecoder(target, drafter="hybrid")
    with pytest.raises(InvalidParameterError, match="shares_cache"):
        SpeculativeDecoder(target, shares_cache=True)
    with pytest.raises(InvalidParameterError, match="eos_token_ids"):
        SpeculativeDecoder(target, eos_token_ids=[5])
    with pytest.raises(InvalidParameterError, match="stop_token_ids holds token id 9"):
        SpeculativeDecoder(target).generate([1], SamplingParams(stop_token_ids=[9]))


def test_one_generation_at_a_time() -> None:
    decoder, _, _ = pair()
    stream = decoder.stream(PROMPT)
    next(stream)
    with pytest.raises(BusyError):
        decoder.generate(PROMPT)
    stream.close()
    decoder.generate(PROMPT)
    unstarted = decoder.stream(PROMPT)
    with pytest.raises(BusyError):
        decoder.stream(PROMPT)
    del unstarted
    gc.collect()
    decoder.generate(PROMPT)
    with decoder.stream(PROMPT):
        pass
    decoder.generate(PROMPT)


def test_cancel_from_another_thread() -> None:
    decoder, target, _ = pair(max_length=5000, draft_length=5000)
    decoder.cancel()  # nothing is open: nothing happens
    honest, started = target.forward, threading.Event()

    def forward(token_ids, num_logits):
        if target.length > 50:
            started.set()
            cancelling.join()
        return honest(token_ids, num_logits)

    target.forward = forward
    cancelling = threading.Thread(target=lambda: (started.wait(), decoder.cancel()))
    cancelling.start()
    result = decoder.generate(PROMPT, SamplingParams(max_new_tokens=4000))
    assert result.finish_reason == "cancelled"
    assert 50 <= len(result.token_ids) < 50 + 2 * 17  # at most the round under way
    target.forward = honest
    assert decoder.generate(PROMPT).finish_reason == "length"


def test_cancel_before_the_first_chunk_ends_during_prefill() -> None:
    decoder, target, _ = pair()
    stream = decoder.stream(PROMPT)
    stream.cancel()
    (chunk,) = list(stream)
    assert chunk.finish_reason == "cancelled"
    assert chunk.token_ids == ()
    assert target.calls == []


def test_closing_the_decoder_closes_its_stream() -> None:
    decoder, target, _ = pair()
    with decoder:
        stream = decoder.stream(PROMPT)
        next(stream)
    assert stream.result.finish_reason == "cancelled"
    assert list(stream) == []
    assert target.closed


def test_closing_while_another_thread_generates() -> None:
    decoder, target, _ = pair(max_length=5000, draft_length=5000)
    honest, entered, leave = target.forward, threading.Event(), threading.Event()

    def forward(token_ids, num_logits):
        entered.set()
        leave.wait()
        return honest(token_ids, num_logits)

    target.forward = forward
    results = []
    params = SamplingParams(max_new_tokens=4000)
    thread = threading.Thread(target=lambda: results.append(decoder.generate(PROMPT, params)))
    thread.start()
    entered.wait()
    with pytest.raises(BusyError):
        decoder.close()
    leave.set()
    thread.join()
    assert results[0].finish_reason == "cancelled"
    decoder.close()
    assert target.closed


def test_closed() -> None:
    decoder, target, draft = pair()
    with decoder:
        session = decoder.session()
    assert target.closed
    assert draft.closed
    decoder.close()
    for call in (decoder.generate, decoder.stream, session.generate):
        with pytest.raises(ClosedError):
            call(PROMPT)
    with pytest.raises(ClosedError):
        decoder.session()


def test_seeds() -> None:
    decoder, _, _ = pair(9)

    def text(seed: int | None, **options) -> tuple[int, ...]:
        params = SamplingParams(max_new_tokens=30, temperature=1.5, seed=seed, **options)
        return decoder.generate(PROMPT, params).token_ids

    for k in (0, 3, "auto"):
        assert text(1, num_draft_tokens=k) == text(1, num_draft_tokens=k)
        assert text(1, num_draft_tokens=k) != text(2, num_draft_tokens=k)
        assert text(None, num_draft_tokens=k) != text(None, num_draft_tokens=k)


def test_seeded_automatic_drafts_do_not_follow_the_clock() -> None:
    """The same request again, after the decoder has learnt other costs, gives the same text."""
    decoder, _, _ = pair(9)
    params = SamplingParams(max_new_tokens=40, temperature=1.0, seed=3)
    first = decoder.generate(PROMPT, params)
    for _ in range(3):
        decoder.generate(PROMPT, SamplingParams(max_new_tokens=40))
    again = decoder.generate(PROMPT, params)
    assert again.token_ids == first.token_ids
    assert again.stats.draft_lengths == first.stats.draft_lengths


def test_logprobs() -> None:
    decoder, target, _ = pair(5)
    params = SamplingParams(
        max_new_tokens=6, temperature=0.7, top_k=2, seed=1, logprobs=2, num_draft_tokens=2
    )
    result = decoder.generate(PROMPT, params)
    assert len(result.logprobs) == 6
    text = list(PROMPT)
    for token, entry in zip(result.token_ids, result.logprobs, strict=True):
        logits = target.logits_after(text)
        raw = logits - np.log(np.exp(logits).sum())
        ranked = [int(t) for t in np.argsort(-raw, kind="stable")]
        kept = np.exp(logits[ranked[:2]] / 0.7)
        processed = dict(zip(ranked[:2], np.log(kept / kept.sum()), strict=True))
        assert entry.chosen.token_id == token
        assert entry.chosen.raw == pytest.approx(raw[token])
        assert entry.chosen.processed == pytest.approx(processed[token])
        assert [a.token_id for a in entry.alternatives] == [t for t in ranked if t != token][:2]
        for other in entry.alternatives:
            assert other.raw == pytest.approx(raw[other.token_id])
            expected = processed.get(other.token_id, -math.inf)
            assert other.processed == pytest.approx(expected)
        text.append(token)
    assert decoder.generate(PROMPT).logprobs is None
    assert decoder.generate(PROMPT, SamplingParams(logprobs=0)).logprobs[0].alternatives == ()


def test_chunks_join_to_the_result() -> None:
    decoder, _, _ = pair()
    params = SamplingParams(max_new_tokens=20, temperature=1.0, seed=1, logprobs=1)
    stream = decoder.stream(PROMPT, params)
    chunks = list(stream)
    result = stream.result
    assert sum((chunk.token_ids for chunk in chunks), ()) == result.token_ids
    assert sum((chunk.logprobs for chunk in chunks), ()) == result.logprobs
    assert [c.finish_reason for c in chunks] == [None] * (len(chunks) - 1) + ["length"]
    drafted = sum((chunk.from_draft for chunk in chunks), ())
    assert sum(drafted) == result.stats.accepted
    assert len(drafted) == 20


def test_stats_add_up() -> None:
    decoder, _, _ = pair()
    params = SamplingParams(max_new_tokens=50, temperature=1.0, num_draft_tokens=3, seed=1)
    stats = decoder.generate(PROMPT, params).stats
    assert stats.prompt_tokens == 2
    assert stats.new_tokens == 50 == stats.accepted + stats.rounds
    assert stats.tokens_per_round == 50 / stats.rounds
    assert stats.acceptance_rate == stats.accepted / stats.evaluated
    assert sum(e for e, _ in stats.acceptance_by_position) == stats.evaluated
    assert sum(a for _, a in stats.acceptance_by_position) == stats.accepted
    assert sum(stats.draft_lengths.values()) == stats.rounds
    assert stats.evaluated <= stats.drafted
    parts = stats.prefill_seconds + stats.draft_seconds + stats.verify_seconds + stats.host_seconds
    assert parts == pytest.approx(stats.total_seconds)
    assert 0 < stats.time_to_first_token <= stats.total_seconds
    decode = stats.total_seconds - stats.prefill_seconds
    assert stats.tokens_per_second == pytest.approx(50 / decode)
    assert json.loads(json.dumps(stats.to_dict()))["new_tokens"] == 50
