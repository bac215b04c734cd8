"""What the submission of an application wrote down of it for those who speak to its master."""

from __future__ import annotations

import attrs

from tony_provider.cluster.errors import UnexpectedAnswer
from tony_provider.runtime import contract
from tony_provider.runtime.foreign_json import ForeignJsonError, read_json
from tony_provider.runtime.most_bytes import APPLICATION
from tony_provider.runtime.storage import Storage, uris
from tony_provider.runtime.storage.helpers import read_whole


@attrs.frozen
class ApplicationAbout:
    """The part of an application's description that its master is spoken to with."""

    authority: str  # whose certificate vouches for the application's master
    others: frozenset[str]  # the names of the tokens that it has beside the store's


def read_about(storage: Storage, application_dir: str) -> ApplicationAbout:
    """As the store has it while the application runs. Raises UnexpectedAnswer, StorageError."""
    uri = uris.join(application_dir, contract.LAUNCH_DIR, contract.APPLICATION_FILE)
    try:
        found = read_json(read_whole(storage, uri, APPLICATION))
        others = [*(str(each["name"]) for each in found.get("other_hdfs", [])), found.get("key_server", "")]
        return ApplicationAbout(str(found["authority"]), frozenset(filter(None, others)))
    except (ForeignJsonError, KeyError, TypeError, AttributeError) as error:
        raise UnexpectedAnswer(f"{uri} does not name the application's authority: it is of an older release") from error
