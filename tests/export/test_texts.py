"""What comes with the weights: templates by name, generation defaults, end tokens, marks."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers

from specdec.engines import GenerationEntry, read_package
from specdec.export.errors import SourceError
from specdec.export.options import ExportOptions
from specdec.export.preflight import Plan, preflight
from specdec.export.sources.generation import within_vocabulary
from specdec.runtime import InvalidParameterError, SamplingParams, SpeculativeDecoder
from tests.export.exporting import export
from tests.export.tiny_models import write_model

DEFAULT = "{% for m in messages %}[{{ m.role }}]{{ m.content }}{% endfor %}"
TOOL_USE = "{{ tools | tojson }}" + DEFAULT
BRIEF = "{{ messages[-1].content }}{% if enable_thinking %}think{% else %}!{% endif %}"
USER = [{"role": "user", "content": "hello"}]
TOOLS = [{"name": "add"}]
PROMPT = [5, 9, 200]


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_model(tmp_path_factory.mktemp("texts") / "llama", "llama")


def changed(source: Path, folder: Path, file: str, **changes: Any) -> Path:
    """A copy of a source with other values in one of its JSON files."""
    copy = Path(shutil.copytree(source, folder))
    path = copy / file
    stated = json.loads(path.read_text()) if path.exists() else {}
    path.write_text(json.dumps({**stated, **changes}))
    return copy


def plan(source: Path, out: Path) -> Plan:
    return preflight(ExportOptions(str(source), "self", out / "package"))


@pytest.fixture(scope="module")
def package(llama: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Named templates in the old layout, and a generation configuration with everything."""
    root = tmp_path_factory.mktemp("named")
    named = [("default", "\ufeff" + DEFAULT), ("tool_use", TOOL_USE), ("brief", BRIEF)]
    source = changed(
        llama,
        root / "old",
        "tokenizer_config.json",
        chat_template=[{"name": name, "template": text} for name, text in named],
    )
    greedy = first_greedy_tokens(source)
    source = changed(
        source,
        root / "source",
        "generation_config.json",
        do_sample=True,
        temperature=0.6,
        top_p=0.9,
        repetition_penalty=1.1,
        suppress_tokens=[greedy[0], 335],
        begin_suppress_tokens=[greedy[1]],
        forced_eos_token_id=1,
        bad_words_ids=[[7]],
        num_beams=1,
    )
    export(source, root / "package")
    return root / "package"


def first_greedy_tokens(source: Path) -> list[int]:
    """The two likeliest tokens after the prompt."""
    model = transformers.AutoModelForCausalLM.from_pretrained(source)
    with torch.no_grad():
        logits = model(torch.tensor([PROMPT])).logits[0, -1, :332]
    return [int(i) for i in logits.topk(2).indices]


@pytest.fixture(scope="module")
def decoder(package: Path) -> Iterator[SpeculativeDecoder]:
    with SpeculativeDecoder.load(package, num_threads=1) as loaded:
        yield loaded


def test_templates_by_name_are_stored_without_their_mark(package: Path) -> None:
    read = read_package(package)
    assert read.chat_template == DEFAULT
    assert read.chat_templates == {"tool_use": TOOL_USE, "brief": BRIEF}
    assert json.loads((package / "specdec.json").read_text())["schema_version"] == 2


def test_tools_choose_their_template(decoder: SpeculativeDecoder) -> None:
    text = "[user]hello"
    assert decoder.encode(USER) == decoder.encode(text)
    assert decoder.encode(USER, TOOLS) == decoder.encode('[{"name": "add"}]' + text)


def test_a_template_chosen_by_name_takes_variables(package: Path) -> None:
    with SpeculativeDecoder.load(package, chat_template="brief", num_threads=1) as brief:
        assert brief.encode(USER) == brief.encode("hello!")
        said = {"enable_thinking": True}
        assert brief.encode(USER, None, said) == brief.encode("hellothink")
        params = SamplingParams(max_new_tokens=2)
        with brief.session() as session:
            result = session.generate(USER, params, chat_template_kwargs=said)
            assert list(result.prompt_token_ids) == brief.encode("hellothink")
            result = session.generate(USER, params)
            assert list(result.prompt_token_ids) == brief.encode("hello!")
        result = brief.generate(USER, params, tools=TOOLS, chat_template_kwargs=said)
        assert list(result.prompt_token_ids) == brief.encode("hellothink")
    with pytest.raises(InvalidParameterError, match="'long'; allowed is brief, default, tool_use"):
        SpeculativeDecoder.load(package, chat_template="long")


def test_the_new_layout_gives_the_same(llama: Path, tmp_path: Path) -> None:
    source = Path(shutil.copytree(llama, tmp_path / "source"))
    (source / "chat_template.jinja").write_text(DEFAULT)
    (source / "additional_chat_templates").mkdir()
    (source / "additional_chat_templates" / "tool_use.jinja").write_text(TOOL_USE)
    tokenizer = plan(source, tmp_path).tokenizer
    assert tokenizer.chat_template == DEFAULT
    assert tokenizer.chat_templates == {"tool_use": TOOL_USE}


def test_a_template_name_that_leaves_the_package_is_refused(llama: Path, tmp_path: Path) -> None:
    evil = [{"name": "../x", "template": DEFAULT}]
    source = changed(llama, tmp_path / "s", "tokenizer_config.json", chat_template=evil)
    with pytest.raises(SourceError, match=r"chat template named '\.\./x'"):
        plan(source, tmp_path)


def test_generation_defaults_are_kept_and_named(package: Path) -> None:
    read = read_package(package).manifest
    stated = read.generation
    assert stated.sampling == {"temperature": 0.6, "top_p": 0.9, "repetition_penalty": 1.1}
    assert len(stated.suppress_tokens) == 1  # the other is padding of the head
    assert len(stated.begin_suppress_tokens) == 1
    assert stated.not_honoured == ("bad_words_ids", "forced_eos_token_id")
    notes = " ".join(read.checks["notes"])
    assert "temperature 0.6, top_p 0.9, repetition_penalty 1.1" in notes
    assert "not honoured of generation_config.json: bad_words_ids ([[7]]), forced_eos" in notes


def test_bans_hold_in_greedy_text(package: Path, decoder: SpeculativeDecoder) -> None:
    """The likeliest token is banned everywhere, the next at the start, as in transformers."""
    said = decoder.defaults
    model = transformers.AutoModelForCausalLM.from_pretrained(package.parent / "source")
    model.generation_config = transformers.GenerationConfig(
        suppress_tokens=[*said.suppress_tokens, *range(332, 340)],
        begin_suppress_tokens=list(said.begin_suppress_tokens),
    )
    with torch.no_grad():
        expected = model.generate(torch.tensor([PROMPT]), max_new_tokens=24, pad_token_id=0)
    wanted = expected[0, len(PROMPT) :].tolist()
    assert wanted[0] not in (*said.suppress_tokens, *said.begin_suppress_tokens)
    for drafted in (0, 4):
        params = SamplingParams(max_new_tokens=24, num_draft_tokens=drafted, ignore_eos=True)
        assert list(decoder.generate(PROMPT, params).token_ids) == wanted


def test_sampling_options_apply_when_asked_for(decoder: SpeculativeDecoder) -> None:
    params = decoder.defaults.params({"max_new_tokens": 3, "top_p": 0.5})
    assert (params.temperature, params.top_p, params.repetition_penalty) == (0.6, 0.5, 1.1)
    assert params.max_new_tokens == 3


@pytest.mark.parametrize(
    ("stated", "sampling"),
    [
        ({"temperature": 0.6, "top_k": 20}, {}),  # the file does not sample
        ({"do_sample": True}, {"temperature": 1.0}),  # not top_k 50, which nobody stated
        ({"do_sample": True, "top_k": 0, "temperature": 0.7}, {"temperature": 0.7}),
        ({"repetition_penalty": 1.2, "max_new_tokens": 99}, None),
        ({"do_sample": False, "no_repeat_ngram_size": 3}, {"no_repeat_ngram_size": 3}),
    ],
)
def test_what_is_stated_counts(
    llama: Path, tmp_path: Path, stated: dict[str, Any], sampling: dict[str, float] | None
) -> None:
    source = changed(llama, tmp_path / "source", "generation_config.json", **stated)
    found = plan(source, tmp_path).tokenizer.generation
    assert found.sampling == (stated if sampling is None else sampling)


def test_a_model_that_says_nothing_has_no_defaults(llama: Path, tmp_path: Path) -> None:
    found = plan(llama, tmp_path)
    assert found.tokenizer.generation.is_empty
    assert found.tokenizer.notes == ()


@pytest.mark.parametrize(
    ("stated", "words"),
    [
        ({"temperature": "hot"}, "temperature in generation_config.json .* is 'hot'"),
        ({"suppress_tokens": [-1]}, r"suppress_tokens in .* is \[-1\]"),
        ({"eos_token_id": 332}, "names the end token 332, and the vocabulary has ids 0 .. 331"),
    ],
)
def test_a_wrong_file_is_refused(
    llama: Path, tmp_path: Path, stated: dict[str, Any], words: str
) -> None:
    source = changed(llama, tmp_path / "source", "generation_config.json", **stated)
    with pytest.raises(SourceError, match=words):
        plan(source, tmp_path)


def test_a_file_that_is_no_json_is_refused(llama: Path, tmp_path: Path) -> None:
    source = Path(shutil.copytree(llama, tmp_path / "source"))
    (source / "generation_config.json").write_text("{")
    with pytest.raises(SourceError, match=r"generation_config\.json of .* is not JSON"):
        plan(source, tmp_path)


def test_every_end_that_is_named_ends(llama: Path, tmp_path: Path) -> None:
    source = changed(llama, tmp_path / "source", "generation_config.json", eos_token_id=[9, 1])
    source = changed(source, tmp_path / "other", "config.json", eos_token_id=12)
    found = plan(source, tmp_path).tokenizer
    assert found.eos_token_ids == (9, 1, 12)
    assert found.notes == (
        "every end token that is named ends a text (generation_config.json says 9, 1; "
        "config.json says 12; the tokenizer says 1)",
    )


def test_an_end_that_no_file_states_is_none(llama: Path, tmp_path: Path) -> None:
    """transformers' Llama configuration says 2 where the file says nothing."""
    source = Path(shutil.copytree(llama, tmp_path / "source"))
    (source / "generation_config.json").unlink()
    config = json.loads((source / "config.json").read_text())
    del config["eos_token_id"]
    (source / "config.json").write_text(json.dumps(config))
    assert plan(source, tmp_path).tokenizer.eos_token_ids == (1,)


def test_bans_of_padding_are_dropped() -> None:
    entry = GenerationEntry(suppress_tokens=(3, 332), begin_suppress_tokens=(331, 400))
    kept = within_vocabulary(entry, 332)
    assert (kept.suppress_tokens, kept.begin_suppress_tokens) == ((3,), (331,))
