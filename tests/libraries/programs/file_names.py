"""Plain PyTorch with the files and directories of well-known training programs: a class for each of them."""

from __future__ import annotations

import io
import shutil
import sys
from pathlib import Path

import joblib
import moments
import torch
from sklearn.preprocessing import StandardScaler
from torch import nn

STEPS, EVERY = 12, 2
FOLDER = moments.CHECKPOINTS


def write(path: Path, state: dict) -> None:
    """Save as ``torch.save`` does, with a moment at which half of the file is written."""
    buffer = io.BytesIO()
    torch.save(state, buffer)
    data = buffer.getvalue()
    with path.open("wb") as file:
        file.write(data[: len(data) // 2])
        file.flush()
        moments.middle()
        file.write(data[len(data) // 2 :])


def load(path: Path) -> dict:
    return torch.load(path, weights_only=False)  # there is a scaler in it


class NanoGpt:
    """``out/ckpt.pt``, overwritten."""

    def load(self) -> dict | None:
        path = FOLDER / "out" / "ckpt.pt"
        return load(path) if path.exists() else None

    def save(self, state: dict) -> None:
        (FOLDER / "out").mkdir(exist_ok=True)
        write(FOLDER / "out" / "ckpt.pt", state)


class Fairseq:
    """``checkpoint2.pt`` and its copies ``checkpoint_best.pt``, ``checkpoint_2_4.pt`` and ``checkpoint_last.pt``."""

    def load(self) -> dict | None:
        path = FOLDER / "checkpoint_last.pt"
        return load(path) if path.exists() else None

    def save(self, state: dict) -> None:
        epoch = state["step"] // EVERY
        best = ["checkpoint_best.pt"] if state["best"] == state["loss"] else []
        write(FOLDER / f"checkpoint{epoch}.pt", state)
        for name in (*best, f"checkpoint_{epoch}_{state['step']}.pt", "checkpoint_last.pt"):
            moments.middle()
            shutil.copyfile(FOLDER / f"checkpoint{epoch}.pt", FOLDER / name)
        for old in FOLDER.glob(f"checkpoint_{epoch - 2}_*.pt"):
            old.unlink()


class Ultralytics:
    """``results.csv``, to which each save appends, ``weights/last.pt``, and ``weights/best.pt`` if it is better."""

    def load(self) -> dict | None:
        path = FOLDER / "weights" / "last.pt"
        return load(path) if path.exists() else None

    def save(self, state: dict) -> None:
        (FOLDER / "weights").mkdir(exist_ok=True)
        with (FOLDER / "results.csv").open("a") as file:
            file.write(f"{state['step']},{state['loss']:.6f}\n")
        write(FOLDER / "weights" / "last.pt", state)
        if state["best"] == state["loss"]:
            write(FOLDER / "weights" / "best.pt", state)


class Pointer:
    """``model_0000002.pth``, and its absolute path in ``last_checkpoint``; the two newest models stay."""

    def load(self) -> dict | None:
        pointer = FOLDER / "last_checkpoint"
        return load(pointer.read_text()) if pointer.exists() else None

    def save(self, state: dict) -> None:
        path = FOLDER / f"model_{state['step']:07d}.pth"
        write(path, state)
        moments.middle()
        (FOLDER / "last_checkpoint").write_text(str(path.absolute()))
        (FOLDER / f"model_{state['step'] - 2 * EVERY:07d}.pth").unlink(missing_ok=True)


class Link:
    """A directory for each save, and the symbolic link ``last`` to the newest one, which is removed and made anew."""

    def load(self) -> dict | None:
        last = FOLDER / "last"
        return {**load(last / "model.pt"), **load(last / "training.pt")} if last.exists() else None

    def save(self, state: dict) -> None:
        folder = FOLDER / f"{state['step']:06d}"
        folder.mkdir(exist_ok=True)
        write(folder / "model.pt", {"model": state["model"]})
        write(folder / "training.pt", {name: value for name, value in state.items() if name != "model"})
        moments.middle()
        self.link(folder)

    def link(self, folder: Path) -> None:
        (FOLDER / "last").unlink(missing_ok=True)
        moments.middle()
        (FOLDER / "last").symlink_to(folder)


class ReplacedLink(Link):
    """The same with a relative link that is replaced in one operation."""

    def link(self, folder: Path) -> None:
        draft = FOLDER / "last.tmp"
        draft.symlink_to(folder.name)
        draft.replace(FOLDER / "last")


class Scaler:
    """``scaler.joblib`` next to ``model.pt``, both overwritten. The optimizer has no state."""

    def load(self) -> dict | None:
        if not (FOLDER / "model.pt").exists():
            return None
        return {**load(FOLDER / "model.pt"), "scaler": joblib.load(FOLDER / "scaler.joblib")}

    def save(self, state: dict) -> None:
        joblib.dump(state["scaler"], FOLDER / "scaler.joblib")
        moments.middle()
        write(FOLDER / "model.pt", {name: value for name, value in state.items() if name != "scaler"})


layout = {each.__name__: each for each in (NanoGpt, Fairseq, Ultralytics, Pointer, Link, ReplacedLink, Scaler)}[
    sys.argv[1]
]()
torch.manual_seed(1)
model = nn.Sequential(nn.Linear(5, 8), nn.Tanh(), nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), 0.05, momentum=0.9)
begin, best, scaler = 0, float("inf"), StandardScaler()
if state := layout.load():
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    begin, best, scaler = state["step"], state["best"], state["scaler"]
moments.began(begin)
for step in range(begin + 1, STEPS + 1):
    torch.manual_seed(step)
    x = torch.randn(64, 5) * 2 + 1
    scaler.partial_fit(x.numpy())
    scaled = torch.from_numpy(scaler.transform(x.numpy())).float()
    loss = nn.functional.mse_loss(model(scaled), x.sum(dim=1, keepdim=True))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    best = min(best, loss.item())
    if step % EVERY == 0:
        moments.saving(step)
        common = {"step": step, "best": best, "loss": loss.item(), "scaler": scaler}
        layout.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(), **common})
        moments.saved(step)
weights = dict(model.state_dict())
if (FOLDER / "results.csv").exists():
    weights["results"] = [[float(value) for value in line.split(",")] for line in (FOLDER / "results.csv").open()]
moments.finished(weights)
