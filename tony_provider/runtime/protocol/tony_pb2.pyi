from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FromExecutor(_message.Message):
    __slots__ = ("registration", "heartbeat", "started", "exited", "settled", "uploaded", "preparation_failed", "tail", "page", "checkpoint_state", "input_part_wanted", "shard_request", "exported", "last_words", "tunnel", "leave", "stacks")
    REGISTRATION_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_FIELD_NUMBER: _ClassVar[int]
    STARTED_FIELD_NUMBER: _ClassVar[int]
    EXITED_FIELD_NUMBER: _ClassVar[int]
    SETTLED_FIELD_NUMBER: _ClassVar[int]
    UPLOADED_FIELD_NUMBER: _ClassVar[int]
    PREPARATION_FAILED_FIELD_NUMBER: _ClassVar[int]
    TAIL_FIELD_NUMBER: _ClassVar[int]
    PAGE_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_STATE_FIELD_NUMBER: _ClassVar[int]
    INPUT_PART_WANTED_FIELD_NUMBER: _ClassVar[int]
    SHARD_REQUEST_FIELD_NUMBER: _ClassVar[int]
    EXPORTED_FIELD_NUMBER: _ClassVar[int]
    LAST_WORDS_FIELD_NUMBER: _ClassVar[int]
    TUNNEL_FIELD_NUMBER: _ClassVar[int]
    LEAVE_FIELD_NUMBER: _ClassVar[int]
    STACKS_FIELD_NUMBER: _ClassVar[int]
    registration: Registration
    heartbeat: Heartbeat
    started: ProcessStarted
    exited: ProcessExited
    settled: Settled
    uploaded: CheckpointUploaded
    preparation_failed: PreparationFailed
    tail: Tail
    page: Page
    checkpoint_state: CheckpointState
    input_part_wanted: InputPartWanted
    shard_request: ShardRequest
    exported: Exported
    last_words: LastWords
    tunnel: TunnelFrames
    leave: Leave
    stacks: Stacks
    def __init__(self, registration: _Optional[_Union[Registration, _Mapping]] = ..., heartbeat: _Optional[_Union[Heartbeat, _Mapping]] = ..., started: _Optional[_Union[ProcessStarted, _Mapping]] = ..., exited: _Optional[_Union[ProcessExited, _Mapping]] = ..., settled: _Optional[_Union[Settled, _Mapping]] = ..., uploaded: _Optional[_Union[CheckpointUploaded, _Mapping]] = ..., preparation_failed: _Optional[_Union[PreparationFailed, _Mapping]] = ..., tail: _Optional[_Union[Tail, _Mapping]] = ..., page: _Optional[_Union[Page, _Mapping]] = ..., checkpoint_state: _Optional[_Union[CheckpointState, _Mapping]] = ..., input_part_wanted: _Optional[_Union[InputPartWanted, _Mapping]] = ..., shard_request: _Optional[_Union[ShardRequest, _Mapping]] = ..., exported: _Optional[_Union[Exported, _Mapping]] = ..., last_words: _Optional[_Union[LastWords, _Mapping]] = ..., tunnel: _Optional[_Union[TunnelFrames, _Mapping]] = ..., leave: _Optional[_Union[Leave, _Mapping]] = ..., stacks: _Optional[_Union[Stacks, _Mapping]] = ...) -> None: ...

class ToExecutor(_message.Message):
    __slots__ = ("rendezvous", "stop", "shutdown", "welcome", "checkpoint", "checkpoint_now", "tail_wanted", "page_wanted", "take_snapshot", "input_part", "shard_answer", "export_now", "newer_token", "tunnel")
    RENDEZVOUS_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    SHUTDOWN_FIELD_NUMBER: _ClassVar[int]
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_NOW_FIELD_NUMBER: _ClassVar[int]
    TAIL_WANTED_FIELD_NUMBER: _ClassVar[int]
    PAGE_WANTED_FIELD_NUMBER: _ClassVar[int]
    TAKE_SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    INPUT_PART_FIELD_NUMBER: _ClassVar[int]
    SHARD_ANSWER_FIELD_NUMBER: _ClassVar[int]
    EXPORT_NOW_FIELD_NUMBER: _ClassVar[int]
    NEWER_TOKEN_FIELD_NUMBER: _ClassVar[int]
    TUNNEL_FIELD_NUMBER: _ClassVar[int]
    rendezvous: Rendezvous
    stop: StopProcess
    shutdown: Shutdown
    welcome: Welcome
    checkpoint: CheckpointAnswer
    checkpoint_now: CheckpointNow
    tail_wanted: TailWanted
    page_wanted: PageWanted
    take_snapshot: TakeSnapshot
    input_part: InputPart
    shard_answer: ShardAnswer
    export_now: ExportNow
    newer_token: NewerToken
    tunnel: TunnelFrames
    def __init__(self, rendezvous: _Optional[_Union[Rendezvous, _Mapping]] = ..., stop: _Optional[_Union[StopProcess, _Mapping]] = ..., shutdown: _Optional[_Union[Shutdown, _Mapping]] = ..., welcome: _Optional[_Union[Welcome, _Mapping]] = ..., checkpoint: _Optional[_Union[CheckpointAnswer, _Mapping]] = ..., checkpoint_now: _Optional[_Union[CheckpointNow, _Mapping]] = ..., tail_wanted: _Optional[_Union[TailWanted, _Mapping]] = ..., page_wanted: _Optional[_Union[PageWanted, _Mapping]] = ..., take_snapshot: _Optional[_Union[TakeSnapshot, _Mapping]] = ..., input_part: _Optional[_Union[InputPart, _Mapping]] = ..., shard_answer: _Optional[_Union[ShardAnswer, _Mapping]] = ..., export_now: _Optional[_Union[ExportNow, _Mapping]] = ..., newer_token: _Optional[_Union[NewerToken, _Mapping]] = ..., tunnel: _Optional[_Union[TunnelFrames, _Mapping]] = ...) -> None: ...

class Registration(_message.Message):
    __slots__ = ("host", "ports", "node", "python", "pid", "generation", "start", "resumed", "clock_ms", "shards")
    class PortsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORTS_FIELD_NUMBER: _ClassVar[int]
    NODE_FIELD_NUMBER: _ClassVar[int]
    PYTHON_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    RESUMED_FIELD_NUMBER: _ClassVar[int]
    CLOCK_MS_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    host: str
    ports: _containers.ScalarMap[str, int]
    node: str
    python: str
    pid: int
    generation: int
    start: int
    resumed: Resume
    clock_ms: int
    shards: _containers.RepeatedCompositeFieldContainer[HeldShards]
    def __init__(self, host: _Optional[str] = ..., ports: _Optional[_Mapping[str, int]] = ..., node: _Optional[str] = ..., python: _Optional[str] = ..., pid: _Optional[int] = ..., generation: _Optional[int] = ..., start: _Optional[int] = ..., resumed: _Optional[_Union[Resume, _Mapping]] = ..., clock_ms: _Optional[int] = ..., shards: _Optional[_Iterable[_Union[HeldShards, _Mapping]]] = ...) -> None: ...

class Heartbeat(_message.Message):
    __slots__ = ("rss_bytes", "cpu_percent", "progress", "activity", "trouble", "further", "ready", "notices", "output_problem", "read_bytes", "written_bytes", "received_bytes", "sent_bytes", "gpu_percent", "gpu_bytes", "node_busy_percent", "parameters")
    class ParametersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    RSS_BYTES_FIELD_NUMBER: _ClassVar[int]
    CPU_PERCENT_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    ACTIVITY_FIELD_NUMBER: _ClassVar[int]
    TROUBLE_FIELD_NUMBER: _ClassVar[int]
    FURTHER_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    NOTICES_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_PROBLEM_FIELD_NUMBER: _ClassVar[int]
    READ_BYTES_FIELD_NUMBER: _ClassVar[int]
    WRITTEN_BYTES_FIELD_NUMBER: _ClassVar[int]
    RECEIVED_BYTES_FIELD_NUMBER: _ClassVar[int]
    SENT_BYTES_FIELD_NUMBER: _ClassVar[int]
    GPU_PERCENT_FIELD_NUMBER: _ClassVar[int]
    GPU_BYTES_FIELD_NUMBER: _ClassVar[int]
    NODE_BUSY_PERCENT_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    rss_bytes: int
    cpu_percent: float
    progress: Progress
    activity: str
    trouble: str
    further: _containers.RepeatedCompositeFieldContainer[ProcessBeat]
    ready: bool
    notices: _containers.RepeatedScalarFieldContainer[str]
    output_problem: str
    read_bytes: int
    written_bytes: int
    received_bytes: int
    sent_bytes: int
    gpu_percent: float
    gpu_bytes: int
    node_busy_percent: float
    parameters: _containers.ScalarMap[str, str]
    def __init__(self, rss_bytes: _Optional[int] = ..., cpu_percent: _Optional[float] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ..., activity: _Optional[str] = ..., trouble: _Optional[str] = ..., further: _Optional[_Iterable[_Union[ProcessBeat, _Mapping]]] = ..., ready: bool = ..., notices: _Optional[_Iterable[str]] = ..., output_problem: _Optional[str] = ..., read_bytes: _Optional[int] = ..., written_bytes: _Optional[int] = ..., received_bytes: _Optional[int] = ..., sent_bytes: _Optional[int] = ..., gpu_percent: _Optional[float] = ..., gpu_bytes: _Optional[int] = ..., node_busy_percent: _Optional[float] = ..., parameters: _Optional[_Mapping[str, str]] = ...) -> None: ...

class ProcessBeat(_message.Message):
    __slots__ = ("local_rank", "rank", "rss_bytes", "cpu_percent", "progress")
    LOCAL_RANK_FIELD_NUMBER: _ClassVar[int]
    RANK_FIELD_NUMBER: _ClassVar[int]
    RSS_BYTES_FIELD_NUMBER: _ClassVar[int]
    CPU_PERCENT_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    local_rank: int
    rank: int
    rss_bytes: int
    cpu_percent: float
    progress: Progress
    def __init__(self, local_rank: _Optional[int] = ..., rank: _Optional[int] = ..., rss_bytes: _Optional[int] = ..., cpu_percent: _Optional[float] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ...) -> None: ...

class Progress(_message.Message):
    __slots__ = ("step", "total_steps", "steps_per_second", "metrics")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    STEP_FIELD_NUMBER: _ClassVar[int]
    TOTAL_STEPS_FIELD_NUMBER: _ClassVar[int]
    STEPS_PER_SECOND_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    step: int
    total_steps: int
    steps_per_second: float
    metrics: _containers.ScalarMap[str, float]
    def __init__(self, step: _Optional[int] = ..., total_steps: _Optional[int] = ..., steps_per_second: _Optional[float] = ..., metrics: _Optional[_Mapping[str, float]] = ...) -> None: ...

class ProcessStarted(_message.Message):
    __slots__ = ("generation", "pid", "start")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PID_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    generation: int
    pid: int
    start: int
    def __init__(self, generation: _Optional[int] = ..., pid: _Optional[int] = ..., start: _Optional[int] = ...) -> None: ...

class ProcessExited(_message.Message):
    __slots__ = ("generation", "exit_code", "signal", "out_of_memory", "stopped", "output_tail", "error", "model_dir", "progress", "start", "not_kept", "node_problem", "process", "outputs", "output_problem", "parameters")
    class ParametersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    SIGNAL_FIELD_NUMBER: _ClassVar[int]
    OUT_OF_MEMORY_FIELD_NUMBER: _ClassVar[int]
    STOPPED_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_TAIL_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    MODEL_DIR_FIELD_NUMBER: _ClassVar[int]
    PROGRESS_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    NOT_KEPT_FIELD_NUMBER: _ClassVar[int]
    NODE_PROBLEM_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    OUTPUT_PROBLEM_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    generation: int
    exit_code: int
    signal: int
    out_of_memory: bool
    stopped: bool
    output_tail: str
    error: str
    model_dir: str
    progress: Progress
    start: int
    not_kept: str
    node_problem: str
    process: str
    outputs: _containers.RepeatedCompositeFieldContainer[KeptOutput]
    output_problem: str
    parameters: _containers.ScalarMap[str, str]
    def __init__(self, generation: _Optional[int] = ..., exit_code: _Optional[int] = ..., signal: _Optional[int] = ..., out_of_memory: bool = ..., stopped: bool = ..., output_tail: _Optional[str] = ..., error: _Optional[str] = ..., model_dir: _Optional[str] = ..., progress: _Optional[_Union[Progress, _Mapping]] = ..., start: _Optional[int] = ..., not_kept: _Optional[str] = ..., node_problem: _Optional[str] = ..., process: _Optional[str] = ..., outputs: _Optional[_Iterable[_Union[KeptOutput, _Mapping]]] = ..., output_problem: _Optional[str] = ..., parameters: _Optional[_Mapping[str, str]] = ...) -> None: ...

class KeptOutput(_message.Message):
    __slots__ = ("name", "part", "files", "bytes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    FILES_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    part: str
    files: int
    bytes: int
    def __init__(self, name: _Optional[str] = ..., part: _Optional[str] = ..., files: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class Stacks(_message.Message):
    __slots__ = ("start", "processes")
    START_FIELD_NUMBER: _ClassVar[int]
    PROCESSES_FIELD_NUMBER: _ClassVar[int]
    start: int
    processes: _containers.RepeatedCompositeFieldContainer[ProcessStack]
    def __init__(self, start: _Optional[int] = ..., processes: _Optional[_Iterable[_Union[ProcessStack, _Mapping]]] = ...) -> None: ...

class ProcessStack(_message.Message):
    __slots__ = ("pid", "command", "process", "frames")
    PID_FIELD_NUMBER: _ClassVar[int]
    COMMAND_FIELD_NUMBER: _ClassVar[int]
    PROCESS_FIELD_NUMBER: _ClassVar[int]
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    pid: int
    command: str
    process: str
    frames: _containers.RepeatedScalarFieldContainer[str]
    def __init__(self, pid: _Optional[int] = ..., command: _Optional[str] = ..., process: _Optional[str] = ..., frames: _Optional[_Iterable[str]] = ...) -> None: ...

class Settled(_message.Message):
    __slots__ = ("generation", "start", "problem", "notices", "unstored")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    NOTICES_FIELD_NUMBER: _ClassVar[int]
    UNSTORED_FIELD_NUMBER: _ClassVar[int]
    generation: int
    start: int
    problem: str
    notices: _containers.RepeatedScalarFieldContainer[str]
    unstored: int
    def __init__(self, generation: _Optional[int] = ..., start: _Optional[int] = ..., problem: _Optional[str] = ..., notices: _Optional[_Iterable[str]] = ..., unstored: _Optional[int] = ...) -> None: ...

class CheckpointState(_message.Message):
    __slots__ = ("generation", "start", "version", "ready", "last", "succeeded", "entries", "base", "blocker", "save", "ordered", "busy")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    READY_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    SUCCEEDED_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    BASE_FIELD_NUMBER: _ClassVar[int]
    BLOCKER_FIELD_NUMBER: _ClassVar[int]
    SAVE_FIELD_NUMBER: _ClassVar[int]
    ORDERED_FIELD_NUMBER: _ClassVar[int]
    BUSY_FIELD_NUMBER: _ClassVar[int]
    generation: int
    start: int
    version: int
    ready: bool
    last: bool
    succeeded: bool
    entries: _containers.RepeatedCompositeFieldContainer[DirectoryEntry]
    base: str
    blocker: str
    save: int
    ordered: str
    busy: bool
    def __init__(self, generation: _Optional[int] = ..., start: _Optional[int] = ..., version: _Optional[int] = ..., ready: bool = ..., last: bool = ..., succeeded: bool = ..., entries: _Optional[_Iterable[_Union[DirectoryEntry, _Mapping]]] = ..., base: _Optional[str] = ..., blocker: _Optional[str] = ..., save: _Optional[int] = ..., ordered: _Optional[str] = ..., busy: bool = ...) -> None: ...

class DirectoryEntry(_message.Message):
    __slots__ = ("name", "group", "news", "first", "step", "needs", "sizes")
    class NeedsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    class SizesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    GROUP_FIELD_NUMBER: _ClassVar[int]
    NEWS_FIELD_NUMBER: _ClassVar[int]
    FIRST_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    NEEDS_FIELD_NUMBER: _ClassVar[int]
    SIZES_FIELD_NUMBER: _ClassVar[int]
    name: str
    group: str
    news: bool
    first: bool
    step: int
    needs: _containers.ScalarMap[str, int]
    sizes: _containers.ScalarMap[str, int]
    def __init__(self, name: _Optional[str] = ..., group: _Optional[str] = ..., news: bool = ..., first: bool = ..., step: _Optional[int] = ..., needs: _Optional[_Mapping[str, int]] = ..., sizes: _Optional[_Mapping[str, int]] = ...) -> None: ...

class TakeSnapshot(_message.Message):
    __slots__ = ("generation", "start", "wanted", "version", "save", "uri", "leave_out", "reason")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    WANTED_FIELD_NUMBER: _ClassVar[int]
    VERSION_FIELD_NUMBER: _ClassVar[int]
    SAVE_FIELD_NUMBER: _ClassVar[int]
    URI_FIELD_NUMBER: _ClassVar[int]
    LEAVE_OUT_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    generation: int
    start: int
    wanted: bool
    version: int
    save: int
    uri: str
    leave_out: _containers.RepeatedScalarFieldContainer[str]
    reason: str
    def __init__(self, generation: _Optional[int] = ..., start: _Optional[int] = ..., wanted: bool = ..., version: _Optional[int] = ..., save: _Optional[int] = ..., uri: _Optional[str] = ..., leave_out: _Optional[_Iterable[str]] = ..., reason: _Optional[str] = ...) -> None: ...

class CheckpointUploaded(_message.Message):
    __slots__ = ("generation", "start", "request", "step", "uri", "format", "entry", "entries", "save", "saved_ms", "reported", "reported_step", "objects", "content_step", "process_seconds", "copy_seconds")
    class ObjectsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    STEP_FIELD_NUMBER: _ClassVar[int]
    URI_FIELD_NUMBER: _ClassVar[int]
    FORMAT_FIELD_NUMBER: _ClassVar[int]
    ENTRY_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    SAVE_FIELD_NUMBER: _ClassVar[int]
    SAVED_MS_FIELD_NUMBER: _ClassVar[int]
    REPORTED_FIELD_NUMBER: _ClassVar[int]
    REPORTED_STEP_FIELD_NUMBER: _ClassVar[int]
    OBJECTS_FIELD_NUMBER: _ClassVar[int]
    CONTENT_STEP_FIELD_NUMBER: _ClassVar[int]
    PROCESS_SECONDS_FIELD_NUMBER: _ClassVar[int]
    COPY_SECONDS_FIELD_NUMBER: _ClassVar[int]
    generation: int
    start: int
    request: int
    step: int
    uri: str
    format: str
    entry: str
    entries: _containers.RepeatedCompositeFieldContainer[TreeEntry]
    save: int
    saved_ms: int
    reported: bool
    reported_step: int
    objects: _containers.ScalarMap[str, int]
    content_step: int
    process_seconds: float
    copy_seconds: float
    def __init__(self, generation: _Optional[int] = ..., start: _Optional[int] = ..., request: _Optional[int] = ..., step: _Optional[int] = ..., uri: _Optional[str] = ..., format: _Optional[str] = ..., entry: _Optional[str] = ..., entries: _Optional[_Iterable[_Union[TreeEntry, _Mapping]]] = ..., save: _Optional[int] = ..., saved_ms: _Optional[int] = ..., reported: bool = ..., reported_step: _Optional[int] = ..., objects: _Optional[_Mapping[str, int]] = ..., content_step: _Optional[int] = ..., process_seconds: _Optional[float] = ..., copy_seconds: _Optional[float] = ...) -> None: ...

class TreeEntry(_message.Message):
    __slots__ = ("path", "kind", "mode", "mtime_ns", "size", "checksum", "object", "offset", "target")
    PATH_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    MODE_FIELD_NUMBER: _ClassVar[int]
    MTIME_NS_FIELD_NUMBER: _ClassVar[int]
    SIZE_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    OBJECT_FIELD_NUMBER: _ClassVar[int]
    OFFSET_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    path: str
    kind: str
    mode: int
    mtime_ns: int
    size: int
    checksum: str
    object: str
    offset: int
    target: str
    def __init__(self, path: _Optional[str] = ..., kind: _Optional[str] = ..., mode: _Optional[int] = ..., mtime_ns: _Optional[int] = ..., size: _Optional[int] = ..., checksum: _Optional[str] = ..., object: _Optional[str] = ..., offset: _Optional[int] = ..., target: _Optional[str] = ...) -> None: ...

class CheckpointAnswer(_message.Message):
    __slots__ = ("request", "granted", "reason", "resend")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    GRANTED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RESEND_FIELD_NUMBER: _ClassVar[int]
    request: int
    granted: bool
    reason: str
    resend: bool
    def __init__(self, request: _Optional[int] = ..., granted: bool = ..., reason: _Optional[str] = ..., resend: bool = ...) -> None: ...

class PreparationFailed(_message.Message):
    __slots__ = ("generation", "start", "damaged", "reason", "uri", "unfit")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    DAMAGED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    URI_FIELD_NUMBER: _ClassVar[int]
    UNFIT_FIELD_NUMBER: _ClassVar[int]
    generation: int
    start: int
    damaged: bool
    reason: str
    uri: str
    unfit: bool
    def __init__(self, generation: _Optional[int] = ..., start: _Optional[int] = ..., damaged: bool = ..., reason: _Optional[str] = ..., uri: _Optional[str] = ..., unfit: bool = ...) -> None: ...

class TailWanted(_message.Message):
    __slots__ = ("question", "bytes", "after")
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    AFTER_FIELD_NUMBER: _ClassVar[int]
    question: int
    bytes: int
    after: int
    def __init__(self, question: _Optional[int] = ..., bytes: _Optional[int] = ..., after: _Optional[int] = ...) -> None: ...

class Tail(_message.Message):
    __slots__ = ("question", "data", "problem", "end")
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    question: int
    data: bytes
    problem: str
    end: int
    def __init__(self, question: _Optional[int] = ..., data: _Optional[bytes] = ..., problem: _Optional[str] = ..., end: _Optional[int] = ...) -> None: ...

class LastWords(_message.Message):
    __slots__ = ("output", "tail")
    OUTPUT_FIELD_NUMBER: _ClassVar[int]
    TAIL_FIELD_NUMBER: _ClassVar[int]
    output: bytes
    tail: str
    def __init__(self, output: _Optional[bytes] = ..., tail: _Optional[str] = ...) -> None: ...

class PageWanted(_message.Message):
    __slots__ = ("question", "method", "target", "headers", "body")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    METHOD_FIELD_NUMBER: _ClassVar[int]
    TARGET_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    BODY_FIELD_NUMBER: _ClassVar[int]
    question: int
    method: str
    target: str
    headers: _containers.ScalarMap[str, str]
    body: bytes
    def __init__(self, question: _Optional[int] = ..., method: _Optional[str] = ..., target: _Optional[str] = ..., headers: _Optional[_Mapping[str, str]] = ..., body: _Optional[bytes] = ...) -> None: ...

class Page(_message.Message):
    __slots__ = ("question", "status", "headers", "data", "last", "problem")
    class HeadersEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    QUESTION_FIELD_NUMBER: _ClassVar[int]
    STATUS_FIELD_NUMBER: _ClassVar[int]
    HEADERS_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    question: int
    status: int
    headers: _containers.ScalarMap[str, str]
    data: bytes
    last: bool
    problem: str
    def __init__(self, question: _Optional[int] = ..., status: _Optional[int] = ..., headers: _Optional[_Mapping[str, str]] = ..., data: _Optional[bytes] = ..., last: bool = ..., problem: _Optional[str] = ...) -> None: ...

class TunnelFrames(_message.Message):
    __slots__ = ("frames",)
    FRAMES_FIELD_NUMBER: _ClassVar[int]
    frames: _containers.RepeatedCompositeFieldContainer[TunnelFrame]
    def __init__(self, frames: _Optional[_Iterable[_Union[TunnelFrame, _Mapping]]] = ...) -> None: ...

class TunnelFrame(_message.Message):
    __slots__ = ("stream", "open", "data", "credit", "end", "closed")
    STREAM_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    CREDIT_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    CLOSED_FIELD_NUMBER: _ClassVar[int]
    stream: int
    open: TunnelOpen
    data: bytes
    credit: int
    end: bool
    closed: str
    def __init__(self, stream: _Optional[int] = ..., open: _Optional[_Union[TunnelOpen, _Mapping]] = ..., data: _Optional[bytes] = ..., credit: _Optional[int] = ..., end: bool = ..., closed: _Optional[str] = ...) -> None: ...

class TunnelOpen(_message.Message):
    __slots__ = ("task", "port")
    TASK_FIELD_NUMBER: _ClassVar[int]
    PORT_FIELD_NUMBER: _ClassVar[int]
    task: str
    port: int
    def __init__(self, task: _Optional[str] = ..., port: _Optional[int] = ...) -> None: ...

class Cluster(_message.Message):
    __slots__ = ("tasks",)
    TASKS_FIELD_NUMBER: _ClassVar[int]
    tasks: _containers.RepeatedCompositeFieldContainer[TaskAddress]
    def __init__(self, tasks: _Optional[_Iterable[_Union[TaskAddress, _Mapping]]] = ...) -> None: ...

class TaskAddress(_message.Message):
    __slots__ = ("type", "index", "role", "host", "ports")
    class PortsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    TYPE_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    ROLE_FIELD_NUMBER: _ClassVar[int]
    HOST_FIELD_NUMBER: _ClassVar[int]
    PORTS_FIELD_NUMBER: _ClassVar[int]
    type: str
    index: int
    role: str
    host: str
    ports: _containers.ScalarMap[str, int]
    def __init__(self, type: _Optional[str] = ..., index: _Optional[int] = ..., role: _Optional[str] = ..., host: _Optional[str] = ..., ports: _Optional[_Mapping[str, int]] = ...) -> None: ...

class Rendezvous(_message.Message):
    __slots__ = ("generation", "cluster", "start", "resume", "keep_checkpoints", "preflight")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    CLUSTER_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    RESUME_FIELD_NUMBER: _ClassVar[int]
    KEEP_CHECKPOINTS_FIELD_NUMBER: _ClassVar[int]
    PREFLIGHT_FIELD_NUMBER: _ClassVar[int]
    generation: int
    cluster: bytes
    start: int
    resume: Resume
    keep_checkpoints: bool
    preflight: str
    def __init__(self, generation: _Optional[int] = ..., cluster: _Optional[bytes] = ..., start: _Optional[int] = ..., resume: _Optional[_Union[Resume, _Mapping]] = ..., keep_checkpoints: bool = ..., preflight: _Optional[str] = ...) -> None: ...

class Resume(_message.Message):
    __slots__ = ("step", "uri", "save", "saved_ms", "checksum", "reported", "reported_step")
    STEP_FIELD_NUMBER: _ClassVar[int]
    URI_FIELD_NUMBER: _ClassVar[int]
    SAVE_FIELD_NUMBER: _ClassVar[int]
    SAVED_MS_FIELD_NUMBER: _ClassVar[int]
    CHECKSUM_FIELD_NUMBER: _ClassVar[int]
    REPORTED_FIELD_NUMBER: _ClassVar[int]
    REPORTED_STEP_FIELD_NUMBER: _ClassVar[int]
    step: int
    uri: str
    save: int
    saved_ms: int
    checksum: str
    reported: bool
    reported_step: int
    def __init__(self, step: _Optional[int] = ..., uri: _Optional[str] = ..., save: _Optional[int] = ..., saved_ms: _Optional[int] = ..., checksum: _Optional[str] = ..., reported: bool = ..., reported_step: _Optional[int] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("am_attempt", "heartbeat_seconds", "clock_ms")
    AM_ATTEMPT_FIELD_NUMBER: _ClassVar[int]
    HEARTBEAT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    CLOCK_MS_FIELD_NUMBER: _ClassVar[int]
    am_attempt: int
    heartbeat_seconds: float
    clock_ms: int
    def __init__(self, am_attempt: _Optional[int] = ..., heartbeat_seconds: _Optional[float] = ..., clock_ms: _Optional[int] = ...) -> None: ...

class CheckpointNow(_message.Message):
    __slots__ = ("reason",)
    REASON_FIELD_NUMBER: _ClassVar[int]
    reason: str
    def __init__(self, reason: _Optional[str] = ...) -> None: ...

class ExportNow(_message.Message):
    __slots__ = ("asked_ms", "reason")
    ASKED_MS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    asked_ms: int
    reason: str
    def __init__(self, asked_ms: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class Exported(_message.Message):
    __slots__ = ("step", "uri", "exported_ms", "asked_ms", "problem")
    STEP_FIELD_NUMBER: _ClassVar[int]
    URI_FIELD_NUMBER: _ClassVar[int]
    EXPORTED_MS_FIELD_NUMBER: _ClassVar[int]
    ASKED_MS_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    step: int
    uri: str
    exported_ms: int
    asked_ms: int
    problem: str
    def __init__(self, step: _Optional[int] = ..., uri: _Optional[str] = ..., exported_ms: _Optional[int] = ..., asked_ms: _Optional[int] = ..., problem: _Optional[str] = ...) -> None: ...

class NewerToken(_message.Message):
    __slots__ = ("text", "until_ms", "others")
    TEXT_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    OTHERS_FIELD_NUMBER: _ClassVar[int]
    text: str
    until_ms: int
    others: _containers.RepeatedCompositeFieldContainer[OtherToken]
    def __init__(self, text: _Optional[str] = ..., until_ms: _Optional[int] = ..., others: _Optional[_Iterable[_Union[OtherToken, _Mapping]]] = ...) -> None: ...

class OtherToken(_message.Message):
    __slots__ = ("name", "text", "until_ms")
    NAME_FIELD_NUMBER: _ClassVar[int]
    TEXT_FIELD_NUMBER: _ClassVar[int]
    UNTIL_MS_FIELD_NUMBER: _ClassVar[int]
    name: str
    text: str
    until_ms: int
    def __init__(self, name: _Optional[str] = ..., text: _Optional[str] = ..., until_ms: _Optional[int] = ...) -> None: ...

class StopProcess(_message.Message):
    __slots__ = ("generation", "grace_seconds", "reason", "start", "checkpoint_seconds", "stacks")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    GRACE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_SECONDS_FIELD_NUMBER: _ClassVar[int]
    STACKS_FIELD_NUMBER: _ClassVar[int]
    generation: int
    grace_seconds: float
    reason: str
    start: int
    checkpoint_seconds: float
    stacks: bool
    def __init__(self, generation: _Optional[int] = ..., grace_seconds: _Optional[float] = ..., reason: _Optional[str] = ..., start: _Optional[int] = ..., checkpoint_seconds: _Optional[float] = ..., stacks: bool = ...) -> None: ...

class Shutdown(_message.Message):
    __slots__ = ("grace_seconds", "reason")
    GRACE_SECONDS_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    grace_seconds: float
    reason: str
    def __init__(self, grace_seconds: _Optional[float] = ..., reason: _Optional[str] = ...) -> None: ...

class Leave(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class InputPartWanted(_message.Message):
    __slots__ = ("request", "name", "position")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    request: int
    name: str
    position: int
    def __init__(self, request: _Optional[int] = ..., name: _Optional[str] = ..., position: _Optional[int] = ...) -> None: ...

class InputPart(_message.Message):
    __slots__ = ("request", "parts", "lines", "position", "last", "problem")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    PARTS_FIELD_NUMBER: _ClassVar[int]
    LINES_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    LAST_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    request: int
    parts: int
    lines: bytes
    position: int
    last: bool
    problem: str
    def __init__(self, request: _Optional[int] = ..., parts: _Optional[int] = ..., lines: _Optional[bytes] = ..., position: _Optional[int] = ..., last: bool = ..., problem: _Optional[str] = ...) -> None: ...

class ShardRequest(_message.Message):
    __slots__ = ("request", "start", "name", "done", "back", "failed", "reason", "outputs", "take")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    START_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    BACK_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    OUTPUTS_FIELD_NUMBER: _ClassVar[int]
    TAKE_FIELD_NUMBER: _ClassVar[int]
    request: int
    start: int
    name: str
    done: int
    back: int
    failed: int
    reason: str
    outputs: _containers.RepeatedScalarFieldContainer[str]
    take: bool
    def __init__(self, request: _Optional[int] = ..., start: _Optional[int] = ..., name: _Optional[str] = ..., done: _Optional[int] = ..., back: _Optional[int] = ..., failed: _Optional[int] = ..., reason: _Optional[str] = ..., outputs: _Optional[_Iterable[str]] = ..., take: bool = ...) -> None: ...

class ShardAnswer(_message.Message):
    __slots__ = ("request", "shard", "line", "failed", "failures", "problem")
    REQUEST_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    LINE_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    FAILURES_FIELD_NUMBER: _ClassVar[int]
    PROBLEM_FIELD_NUMBER: _ClassVar[int]
    request: int
    shard: int
    line: str
    failed: int
    failures: str
    problem: str
    def __init__(self, request: _Optional[int] = ..., shard: _Optional[int] = ..., line: _Optional[str] = ..., failed: _Optional[int] = ..., failures: _Optional[str] = ..., problem: _Optional[str] = ...) -> None: ...

class HeldShards(_message.Message):
    __slots__ = ("start", "name", "shards")
    START_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    start: int
    name: str
    shards: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, start: _Optional[int] = ..., name: _Optional[str] = ..., shards: _Optional[_Iterable[int]] = ...) -> None: ...
