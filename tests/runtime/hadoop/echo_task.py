"""What the test application masters launch: says which secrets, kinds of token and files it was given."""

from __future__ import annotations

import os
from pathlib import Path

from tony_provider.runtime.common.contract import ENV_TOKEN_FILE
from tony_provider.runtime.hadoop.tokens import Credentials

if __name__ == "__main__":
    credentials = Credentials.read_file(os.environ[ENV_TOKEN_FILE])
    # Without what YARN has added for the master, where its proxy speaks https to masters.
    own = {name: value for name, value in credentials.secrets.items() if not name.startswith("yarn.application.am.")}
    print("secrets", {name: value.decode() for name, value in own.items()})
    print("kinds", sorted({token.kind for token in credentials.tokens.values()}))
    print("files", {path.name: path.read_text() for path in Path().glob("input-*")})
