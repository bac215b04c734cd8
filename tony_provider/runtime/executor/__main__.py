"""``python -m tony_provider.runtime.executor``, in a container that the application master launched."""

from __future__ import annotations

from tony_provider.runtime.executor.main import main

main()
