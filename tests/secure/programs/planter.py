"""A program that puts files into directories in which YARN will start containers of its user later, on its node.

The names of these containers are known beforehand: numbers of applications, attempts and containers count up. A
key is in the name of the directory of an unpacked archive. MARKER: the file that planted code writes when it
runs.
"""

import os
import re
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

_APPLICATIONS, _ATTEMPTS, _CONTAINERS = 3, 2, 4
_CODE = f"open({os.environ['MARKER']!r}, 'a').write('ran')\n"


def plant(container):
    """Code that Python imports by itself as soon as a program of the job starts, and a library for our own programs."""
    customize = container / "tony-work" / "sdk" / "sitecustomize"
    customize.mkdir(parents=True)
    (customize / "__init__.py").write_text(_CODE)
    (container / "tony-work").chmod(0o700)
    library = container / "tony" / "lib" / f"asyncio{EXTENSION_SUFFIXES[0]}"
    library.parent.mkdir(parents=True)
    library.write_bytes(b"a library would run; this one fails the program that loads it")
    container.chmod(0o750)


own = Path.cwd()
stamp, number = re.fullmatch(r"application_(\d+)_(\d+)", own.parent.name).groups()
for later in range(int(number) + 1, int(number) + 1 + _APPLICATIONS):
    application = own.parent.parent / f"application_{stamp}_{later:04}"
    start = own.name.partition(stamp)[0]
    for attempt in range(1, _ATTEMPTS + 1):
        for container in range(1, _CONTAINERS + 1):
            plant(application / f"{start}{stamp}_{later:04}_{attempt:02}_{container:06}")
    application.chmod(0o710)
    print("planted", application)
