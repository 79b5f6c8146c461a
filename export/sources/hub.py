"""Ask the hub for a model once, before anything is downloaded.

transformers asks for each file in turn and tries each several times, so that without a network
one export would wait for minutes. One request tells whether the hub answers; if it does not, the
model is taken from the local cache or refused at once.
"""

from __future__ import annotations

from specdec.export.errors import SourceError

__all__ = ["find_on_hub"]

_TIMEOUT_SECONDS = 10


def find_on_hub(model_id: str) -> str:
    """Return what `from_pretrained` should read: `model_id`, or its folder in the local cache.

    Raises:
        SourceError: the hub has no such model, or does not answer and the cache has no copy.
    """
    from huggingface_hub import HfApi
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, RepositoryNotFoundError

    try:
        HfApi().model_info(model_id, timeout=_TIMEOUT_SECONDS)
    except GatedRepoError as error:
        raise SourceError(
            f"{model_id} is gated; accept its terms on the hub and log in with `hf auth login`"
        ) from error
    except RepositoryNotFoundError as error:
        raise SourceError(
            f"there is no folder {model_id!r} and no such model on the hub; check the name, or log "
            "in with `hf auth login` if it is private"
        ) from error
    except HfHubHTTPError:  # a mirror without this request, or a busy hub: let the download say
        return model_id
    except OSError as error:
        return _cached(model_id, error)
    return model_id


def _cached(model_id: str, error: OSError) -> str:
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import LocalEntryNotFoundError

    try:
        return str(snapshot_download(model_id, local_files_only=True))
    except LocalEntryNotFoundError:
        raise SourceError(
            f"there is no folder {model_id!r}, the hub cannot be reached, and its cache has no "
            "copy of a model of this name; connect, or pass a folder or a .gguf file"
        ) from error
