from typing import Any

class ApplicationMasterStub:
    Attach: Any
    def __init__(self, channel: Any) -> None: ...

class ApplicationMasterServicer:
    def Attach(self, request_iterator: Any, context: Any) -> Any: ...

def add_ApplicationMasterServicer_to_server(servicer: ApplicationMasterServicer, server: Any) -> None: ...
