"""stable-baselines3's ``CheckpointCallback`` with the replay buffer and the statistics of ``VecNormalize``."""

from __future__ import annotations

import re

import moments
from gymnasium.envs.classic_control import CartPoleEnv
from gymnasium.wrappers import TimeLimit
from stable_baselines3 import DQN
from stable_baselines3.common.callbacks import CheckpointCallback
from stable_baselines3.common.vec_env import DummyVecEnv, VecNormalize

STEPS, EVERY = 700, 100


class Piece:
    """Part of what is saved: a save that is pickled up to here is half written."""

    def __reduce__(self):
        moments.middle()
        return Piece, ()


class Model(DQN):
    def save(self, *arguments, **options):
        super().save(*arguments, **options)
        moments.middle()

    def save_replay_buffer(self, path):
        self.replay_buffer.piece = Piece()
        super().save_replay_buffer(path)
        moments.middle()


class Checkpoints(CheckpointCallback):
    def _on_step(self):
        if self.n_calls % self.save_freq:
            return True
        moments.saving(self.num_timesteps)
        super()._on_step()
        moments.saved(self.num_timesteps)
        return True


def newest() -> int:
    names = [path.name for path in moments.CHECKPOINTS.glob("rl_model_*_steps.zip")]
    return max((int(re.findall(r"\d+", name)[-1]) for name in names), default=0)


begin = newest()
env = DummyVecEnv([lambda: TimeLimit(CartPoleEnv(), 50)])
if begin:
    env = VecNormalize.load(moments.CHECKPOINTS / f"rl_model_vecnormalize_{begin}_steps.pkl", env)
    model = Model.load(moments.CHECKPOINTS / f"rl_model_{begin}_steps.zip", env)
    model.load_replay_buffer(moments.CHECKPOINTS / f"rl_model_replay_buffer_{begin}_steps.pkl")
else:
    model = Model(
        "MlpPolicy", VecNormalize(env), buffer_size=2000, learning_starts=20, policy_kwargs={"net_arch": [8]}, seed=1
    )
moments.began(begin)
callback = Checkpoints(EVERY, moments.CHECKPOINTS, save_replay_buffer=True, save_vecnormalize=True)
model.learn(STEPS - begin, callback, reset_num_timesteps=False)
moments.finished({"steps": [model.num_timesteps]})
