"""Callbacks of frameworks, with the real packages: each trains a model that is no model of ours, and telem has what it said.

Keras is among the requirements of the tests. PyTorch weighs gigabytes: tests/py/requirements-torch.txt has what the others
need, and where it is not installed those are skipped with that reason.
"""

import importlib.util
import os
import pathlib
import subprocess
import sys

import pytest

CLIENT = pathlib.Path(__file__).resolve().parents[2] / "clients" / "python"
PATIENCE_S = 300


def train(script, tmp_path, **environment):
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("TELEM_", "SLURM_", "OMPI_", "PMI", "RANK"))}
    offline = {"HF_HUB_OFFLINE": "1", "KERAS_HOME": str(tmp_path / "keras"), "CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": str(CLIENT)}
    return subprocess.run(
        [sys.executable, "-c", script],
        env={**clean, **offline, **environment},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
    )


def needs(package):
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed: it is in tests/py/requirements-torch.txt")


KERAS = """
import os
import numpy, keras
from telem.keras import TelemCallback
keras.utils.set_random_seed(1)
x = numpy.random.rand(128, 4).astype("float32")
y = x.sum(axis=1, keepdims=True)
model = keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(8, activation="relu"), keras.layers.Dense(1)])
model.compile(optimizer="adam", loss="mse", metrics=["mae"])
history = model.fit(x, y, epochs=3, batch_size=32, validation_split=0.25, verbose=0,
                    callbacks=[TelemCallback(every=2, tags={"model": "small"})])
for values in zip(history.history["loss"], history.history["val_loss"]):
    print(*map(repr, values))
"""


def needs_keras():
    if sys.version_info < (3, 11):
        pytest.skip("this Keras is for Python 3.11 and newer")


def test_keras_logs_its_epochs_and_batches(serve, tmp_path):
    needs_keras()
    server = serve(tmp_path / "db")
    done = train(KERAS, tmp_path, KERAS_BACKEND="jax", TELEM_CONNECTION=str(tmp_path / "db" / "connection.json"))
    assert done.returncode == 0, done.stderr
    said = [tuple(map(float, line.split())) for line in done.stdout.splitlines()]
    rows = server.sql("SELECT l.step, l.value AS loss, v.value AS val, l.model FROM loss l JOIN val_loss v USING (ts) ORDER BY 1")
    assert [(row["loss"], row["val"]) for row in rows] == said and [row["step"] for row in rows] == [0, 1, 2]
    assert {row["model"] for row in rows} == {"small"}
    batches = server.sql('SELECT step FROM "batch/loss" ORDER BY ts')
    assert [row["step"] for row in batches] == [2, 4, 6, 8]
    assert server.sql("SELECT count(*) AS n FROM epoch_seconds WHERE value > 0") == [{"n": 3}]
    assert server.sql("SELECT settings['keras.optimizer'] AS o, settings['keras.epochs'] AS e FROM jobs") == [{"o": "Adam", "e": "3"}]


def test_keras_trains_as_ever_without_telem(serve, tmp_path):
    needs_keras()
    server = serve(tmp_path / "db")
    with_it = train(KERAS, tmp_path, KERAS_BACKEND="jax", TELEM_CONNECTION=str(tmp_path / "db" / "connection.json"))
    without = train(KERAS, tmp_path, KERAS_BACKEND="jax")
    assert (with_it.returncode, with_it.stdout) == (without.returncode, without.stdout) and without.returncode == 0
    assert server.sql("SELECT count(*) AS n FROM loss") == [{"n": 3}]


LIGHTNING = """
import torch, warnings, logging
warnings.simplefilter("ignore")
from lightning.pytorch import LightningModule, Trainer, seed_everything
from telem.lightning import TelemLogger
seed_everything(1)
class Model(LightningModule):
    def __init__(self, width=4):
        super().__init__()
        self.save_hyperparameters()
        self.layer = torch.nn.Linear(width, 1)
    def training_step(self, batch, number):
        loss = self.layer(batch).pow(2).mean()
        self.log("train_loss", loss)
        print(self.global_step, repr(float(loss)))
        return loss
    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)
data = torch.utils.data.DataLoader(torch.rand(64, 4), batch_size=8)
Trainer(max_epochs=2, logger=TelemLogger(name="lit", prefix="lit"), log_every_n_steps=1, accelerator="cpu",
        enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False).fit(Model(), data)
"""


def test_lightning_logs_each_step_and_its_hyperparameters(serve, tmp_path):
    needs("lightning")
    server = serve(tmp_path / "db")
    done = train(LIGHTNING, tmp_path, TELEM_CONNECTION=str(tmp_path / "db" / "connection.json"))
    assert done.returncode == 0, done.stderr
    said = [(int(step), float(loss)) for step, loss in (line.split() for line in done.stdout.splitlines() if line[:1].isdigit())]
    rows = server.sql('SELECT step, value FROM "lit/train_loss" ORDER BY step')
    assert [(row["step"], row["value"]) for row in rows] == said and len(said) == 16
    assert server.sql("SELECT name, settings['width'] AS width FROM jobs") == [{"name": "lit", "width": "4"}]


TRAINER = """
import torch, warnings
warnings.simplefilter("ignore")
from transformers import Trainer, TrainingArguments, set_seed
from telem.huggingface import TelemCallback
set_seed(1)
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)
    def forward(self, x=None, labels=None):
        return {"loss": (self.layer(x) - labels).pow(2).mean()}
data = [{"x": torch.rand(4), "labels": torch.rand(1)} for _ in range(32)]
arguments = TrainingArguments("out", num_train_epochs=2, per_device_train_batch_size=8, logging_steps=2, report_to=[],
                              save_strategy="no", use_cpu=True, disable_tqdm=True)
trainer = Trainer(Model(), arguments, train_dataset=data, callbacks=[TelemCallback(tags={"task": "t"})])
trainer.train()
for line in trainer.state.log_history:
    if "loss" in line:
        print("said", line["step"], line["loss"])
"""


def test_the_trainer_of_hugging_face_logs_what_it_says(serve, tmp_path):
    needs("transformers")
    needs("accelerate")
    server = serve(tmp_path / "db")
    done = train(TRAINER, tmp_path, TELEM_CONNECTION=str(tmp_path / "db" / "connection.json"))
    assert done.returncode == 0, done.stderr
    said = [(int(line.split()[1]), float(line.split()[2])) for line in done.stdout.splitlines() if line.startswith("said")]
    rows = server.sql("SELECT step, value, task FROM loss ORDER BY step")
    assert [(row["step"], row["value"]) for row in rows] == said and len(said) == 4 and {row["task"] for row in rows} == {"t"}
    assert server.sql("SELECT count(*) AS n FROM step_seconds") == [{"n": 8}]
    assert server.sql("SELECT settings['trainer.num_train_epochs'] AS e FROM jobs") == [{"e": "2"}]


@pytest.mark.parametrize("module", ["keras", "lightning", "huggingface"])
def test_a_framework_that_is_not_there_is_named(tmp_path, module):
    done = train(f"import sys; sys.modules.update(keras=None, lightning=None, pytorch_lightning=None, transformers=None); import telem.{module}", tmp_path)
    package = {"keras": "keras", "lightning": "lightning", "huggingface": "transformers"}[module]
    assert done.returncode == 1 and f"ImportError: telem.{module} needs the package {package}" in done.stderr
