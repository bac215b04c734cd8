"""Remedies by library: what to change in a program so that it saves into its checkpoint directory."""

from __future__ import annotations

import re

from tony_provider.runtime import contract

_DIRECTORY = f'os.environ["{contract.ENV_CHECKPOINT_DIR}"]'
# The first pattern that the path contains decides.
_REMEDIES = [
    (r"(?:^|/)lightning_logs/", f"Lightning: Trainer(default_root_dir={_DIRECTORY})"),
    (r"(?:^|/)epoch=[^/]*\.ckpt$", f"Lightning: ModelCheckpoint(dirpath={_DIRECTORY})"),
    (r"(?:^|/)runs/[a-z]+/[^/]+/weights/", f"ultralytics: model.train(project={_DIRECTORY})"),
    (
        r"(?:^|/)checkpoint-[0-9]+/|(?:^|/)trainer_state\.json$",
        f"transformers: TrainingArguments(output_dir={_DIRECTORY})",
    ),
    (
        r"(?:^|/)checkpoint_[0-9]+/(?:model|optimizer|pytorch_model|random_states|scheduler)",
        f"accelerate: Accelerator(project_dir={_DIRECTORY})",
    ),
    (r"(?:mp_rank_[0-9]+_model|_optim)_states\.pt$", f"DeepSpeed: engine.save_checkpoint({_DIRECTORY})"),
    (r"\.distcp$", f"torch.distributed.checkpoint: save(…, checkpoint_id={_DIRECTORY} + f'/step-{{step}}')"),
    (r"(?:^|/)rl_model_[0-9]+_steps", f"stable-baselines3: CheckpointCallback(save_path={_DIRECTORY})"),
    (r"\.(?:keras|weights\.h5)$", f"Keras: ModelCheckpoint(filepath={_DIRECTORY} + '/…')"),
    (r"\.index$", f"TensorFlow: CheckpointManager(checkpoint, {_DIRECTORY})"),
    (r"(?:_checkpoint_metadata|commit_success\.txt)$", f"Orbax: CheckpointManager({_DIRECTORY})"),
    (r"\.pdparams$", f"Paddle: paddle.save(…, {_DIRECTORY} + '/…')"),
    (r"(?:^|/)checkpoint_(?:last|best|[0-9_]+)\.pt$", f'fairseq: --save-dir "${contract.ENV_CHECKPOINT_DIR}"'),
]


def remedy(path: str) -> str:
    """Return what to do, for the path of a file that a program saved elsewhere."""
    for pattern, text in _REMEDIES:
        if re.search(pattern, path, re.IGNORECASE):
            return f"save into {contract.ENV_CHECKPOINT_DIR} instead. {text}"
    return f"have the program write its checkpoints into the directory {contract.ENV_CHECKPOINT_DIR}"
