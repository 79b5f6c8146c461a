"""What version 2 of the manifest adds: named chat templates and generation defaults."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

import pytest

from specdec.engines import FileEntry, GenerationEntry, Manifest
from tests.engines.packages import make_manifest, refusal


class TestVersion2:
    """Named chat templates and generation defaults; what uses neither stays version 1."""

    def make(self) -> Manifest:
        manifest = make_manifest()
        files = {**manifest.files, "additional_chat_templates/t.jinja": FileEntry(0, "0" * 64)}
        named = {"tool_use": "additional_chat_templates/t.jinja"}
        return dataclasses.replace(
            manifest,
            files=files,
            tokenizer=dataclasses.replace(manifest.tokenizer, chat_templates=named),
            generation=GenerationEntry({"temperature": 0.6}, (3,), (4, 5), ("num_beams",)),
        )

    def test_it_reads_what_it_writes(self) -> None:
        manifest = self.make()
        document = manifest.to_json()
        assert json.loads(document)["schema_version"] == 2
        assert Manifest.from_json(document) == manifest

    def test_an_old_version_does_not_hold_new_fields(self) -> None:
        for name in ("generation", "tokenizer.chat_templates"):
            tree = json.loads(self.make().to_json()) | {"schema_version": 1}
            if name == "generation":
                del tree["tokenizer"]["chat_templates"]
            else:
                del tree["generation"]
            message = refusal(json.dumps(tree))
            assert f"{name} is present; allowed is no such field before version 2" in message

    @pytest.mark.parametrize(
        ("change", "words"),
        [
            (lambda t: t["generation"].update(surprise=1), "generation is an object with the unk"),
            (lambda t: t["generation"].update(suppress_tokens=[100]), "suppress_tokens[0] is 100"),
            (
                lambda t: t["generation"].update(sampling={"temperature": True}),
                "an object of finite numbers",
            ),
            (
                lambda t: t["tokenizer"].update(chat_templates={"tool_use": "gone.jinja"}),
                "tokenizer.chat_templates['tool_use'] is 'gone.jinja'; allowed is a file listed",
            ),
            (
                lambda t: t["tokenizer"].update(chat_templates={"tool_use": "../x"}),
                "relative paths that stay inside",
            ),
            (
                lambda t: t["tokenizer"].update(chat_templates={"default": "tokenizer.json"}),
                "the key default",
            ),
        ],
    )
    def test_a_broken_field_is_named(self, change: Any, words: str) -> None:
        tree = json.loads(self.make().to_json())
        change(tree)
        assert words in refusal(json.dumps(tree))
