"""transformers' Trainer with what it lacks: layer-wise rates, an average of the weights, whole checkpoints."""

from __future__ import annotations

import json
import math
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from transformers import EarlyStoppingCallback, PrinterCallback, Trainer, TrainerCallback, TrainingArguments
from transformers.trainer_utils import EvalPrediction
from transformers.utils import is_torch_bf16_gpu_available, logging

from ..errors import VitHubError
from ..modeling.vit import VisionTransformer
from .augment import IGNORED, Collator, HeldOutImages, Shuffled, TrainingImages
from .ema import Average
from .recipe import Recipe, RecipeError

HEADS = ("head", "head_dist")
_AVERAGE = "ema.safetensors"
_WHOLE = "whole.json"  # written last: a checkpoint without it is a torso


class TrainingError(VitHubError, RuntimeError):
    """A training that leads nowhere."""


class Tuner(Trainer):
    """The Trainer as a recipe wants it.

    Args:
        model: a ``MyViTForImageClassification``, perhaps with adapters of peft.
        network: the network in it.
    """

    loss_is_scaled_for_ga = False  # the loss below is the mean of its batch

    def __init__(
        self,
        model: nn.Module,
        network: VisionTransformer,
        recipe: Recipe,
        training: TrainingImages,
        held_out: HeldOutImages,
        checkpoints: Path,
    ) -> None:
        self.model: nn.Module
        self.recipe, self.network = recipe, network
        self.sampler = Shuffled(len(training), recipe.seed)
        self.average: Average | None = None
        self.unreadable: set[int] = set()
        self.resumed: Path | None = None
        super().__init__(
            model=model,
            args=arguments(recipe, len(training), checkpoints),
            train_dataset=training,
            eval_dataset=held_out,
            data_collator=Collator(recipe, network.num_classes),
            compute_metrics=_top1,
            preprocess_logits_for_metrics=_choices,
            callbacks=[_Keeper(self)],
        )
        if recipe.early_stopping:
            self.add_callback(EarlyStoppingCallback(recipe.early_stopping))
        self.remove_callback(PrinterCallback)  # without a terminal it would print every step

    def _get_train_sampler(self, train_dataset: Any = None) -> Shuffled:
        return self.sampler

    def create_optimizer(self, model: Any = None) -> torch.optim.Optimizer:
        """AdamW, with a rate of its own for each layer."""
        if self.optimizer is None:
            self.optimizer = torch.optim.AdamW(parameter_groups(self.network, self.recipe), betas=self.recipe.betas)
        return self.optimizer

    def _get_learning_rate(self) -> float:
        """The head's: the first group has that of the lowest layer."""
        assert self.lr_scheduler is not None  # asked for while training only
        return float(max(self.lr_scheduler.get_last_lr()))

    def training_step(self, model: nn.Module, inputs: dict[str, Any], num_items_in_batch: Any = None) -> Tensor:
        """One step; rows that could not be read are noted."""
        inputs = dict(inputs)
        self.unreadable.update(inputs.pop("unreadable").tolist())
        return super().training_step(model, inputs, num_items_in_batch)

    def compute_loss(
        self, model: nn.Module, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Cross entropy, against classes or probabilities."""
        if self.recipe.method == "head":
            for name, part in self.network.named_children():
                part.train(model.training and name in HEADS)
        labels = inputs["labels"]
        outputs = model(pixel_values=inputs["pixel_values"])
        logits = outputs.logits.float()
        if labels.is_floating_point():
            loss = F.cross_entropy(logits, labels)
        else:
            counted = (labels != IGNORED).sum().clamp(min=1)
            loss = F.cross_entropy(logits, labels, ignore_index=IGNORED, reduction="sum") / counted
        return (loss, outputs) if return_outputs else loss

    def evaluate(self, *args: Any, **kwargs: Any) -> dict[str, float]:
        """As the Trainer's, with the average of the weights where there is one."""
        with self.average.applied(self.model) if self.average else nullcontext():
            return super().evaluate(*args, **kwargs)

    def _load_best_model(self) -> None:
        super()._load_best_model()
        if self.average:
            self.average.load(Path(str(self.state.best_model_checkpoint), _AVERAGE))

    def run(self, checkpoint: Path | None) -> None:
        """Train, from a checkpoint on where there is one, and leave the result in the model."""
        self.resumed = checkpoint
        if checkpoint:
            self.unreadable.update(json.loads((checkpoint / _WHOLE).read_text())["unreadable"])
        with _without_bars():
            self.train(resume_from_checkpoint=str(checkpoint) if checkpoint else None)
        self.unreadable = self.gathered()
        if self.average:
            self.average.copy_to(self.model)
            self.average = None

    def gathered(self) -> set[int]:
        """The rows that no process could read."""
        from accelerate.utils import gather_object

        return set(gather_object(sorted(self.unreadable)))


class _Keeper(TrainerCallback):
    """What must be done at certain moments: shuffle, average, keep."""

    def __init__(self, tuner: Tuner) -> None:
        self.tuner = tuner

    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        tuner = self.tuner
        if tuner.recipe.ema:
            tuner.average = Average(tuner.model, tuner.recipe.ema)
            if tuner.resumed:
                tuner.average.load(tuner.resumed / _AVERAGE)

    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self.tuner.sampler.epoch = int(state.epoch)

    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if self.tuner.average:
            self.tuner.average.update(self.tuner.model, state.global_step)

    def on_log(self, args: Any, state: Any, control: Any, logs: dict[str, Any] | None = None, **kwargs: Any) -> None:
        if not math.isfinite((logs or {}).get("loss", 0.0)):
            raise TrainingError(
                f"the loss is not a number any more at step {state.global_step}: start again with a lower lr, a longer "
                "warmup or without bf16"
            )

    def on_save(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        unreadable = self.tuner.gathered()  # of all processes, so all must come here
        if not args.should_save:
            return
        folder = Path(args.output_dir, f"checkpoint-{state.global_step}")
        if self.tuner.average:
            self.tuner.average.save(folder / _AVERAGE)
        (folder / _WHOLE).write_text(json.dumps({"unreadable": sorted(unreadable)}))


@contextmanager
def _without_bars() -> Iterator[None]:
    """Without the bar of every file that is saved; the Trainer's own is not among them."""
    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


def last_checkpoint(checkpoints: Path) -> Path | None:
    """The newest checkpoint that was written to its end."""
    whole = [file.parent for file in checkpoints.glob(f"checkpoint-*/{_WHOLE}")]
    return max(whole, key=lambda folder: int(folder.name.rpartition("-")[2]), default=None)


def parameter_groups(network: VisionTransformer, recipe: Recipe) -> list[dict[str, Any]]:
    """Parameters by layer, with real rates: ``lr`` for the head, less by ``layer_decay`` for each layer below.

    timm sorts them, and tells what has no weight decay; but its ``lr_scale`` is read by timm's own schedulers only.

    Example:
        >>> from vit_hub.presets import config
        >>> groups = parameter_groups(VisionTransformer(config("myvit_test_token")), Recipe(lr=1.0, layer_decay=0.5))
        >>> sorted({group["lr"] for group in groups})
        [0.0625, 0.125, 0.25, 0.5, 1.0]
    """
    from timm.optim import param_groups_layer_decay

    groups = param_groups_layer_decay(
        network, recipe.weight_decay, network.no_weight_decay(), layer_decay=recipe.layer_decay
    )
    return [{**group, "lr": recipe.lr * group["lr_scale"]} for group in groups]


def arguments(recipe: Recipe, rows: int, checkpoints: Path) -> TrainingArguments:
    """A recipe in the Trainer's words."""
    gpu = torch.accelerator.is_available()
    if recipe.bf16 and gpu and not is_torch_bf16_gpu_available():
        raise RecipeError([f"bf16=true, but this {torch.accelerator.current_accelerator()} does not compute in it"])
    processes = int(os.environ.get("WORLD_SIZE", "1"))
    devices = processes if processes > 1 else max(1, torch.cuda.device_count())
    parts = devices * recipe.accumulate
    if recipe.batch_size % parts:
        raise RecipeError(
            [f"batch_size={recipe.batch_size} is not a multiple of {devices} devices x accumulate={recipe.accumulate}"]
        )
    often = "steps" if recipe.evaluate_every else "epoch"
    workers = (min(8, os.cpu_count() or 1) if gpu else 0) if recipe.workers is None else recipe.workers
    steps = math.ceil(rows / recipe.batch_size) * recipe.epochs
    return TrainingArguments(
        output_dir=str(checkpoints),
        num_train_epochs=recipe.epochs,
        per_device_train_batch_size=recipe.batch_size // parts,
        per_device_eval_batch_size=recipe.batch_size // parts,
        gradient_accumulation_steps=recipe.accumulate,
        learning_rate=recipe.lr,
        lr_scheduler_type="cosine",
        warmup_steps=recipe.warmup,  # less than one: of all steps
        max_grad_norm=recipe.clip_grad,
        bf16=recipe.bf16,
        gradient_checkpointing=recipe.grad_checkpointing,
        gradient_checkpointing_kwargs={"use_reentrant": False},
        seed=recipe.seed,
        eval_strategy=often,
        save_strategy=often,
        eval_steps=recipe.evaluate_every or None,
        save_steps=recipe.evaluate_every or 1,
        save_total_limit=2,  # the newest may not be whole yet
        load_best_model_at_end=recipe.early_stopping > 0,
        metric_for_best_model="top1" if recipe.early_stopping else None,
        restore_callback_states_from_checkpoint=recipe.early_stopping > 0,
        logging_steps=max(1, steps // 100),
        logging_nan_inf_filter=False,
        disable_tqdm=not sys.stderr.isatty(),
        report_to=[],
        label_names=["labels"],
        remove_unused_columns=False,
        dataloader_num_workers=workers,
        dataloader_pin_memory=gpu,
        use_cpu=not gpu,
        ddp_find_unused_parameters=False,
    )


def _choices(logits: Tensor, labels: Tensor) -> Tensor:
    return logits.argmax(dim=-1)


def _top1(measured: EvalPrediction) -> dict[str, float]:
    predicted, labels = np.asarray(measured.predictions), np.asarray(measured.label_ids)
    return {"top1": float(np.mean((predicted == labels)[labels != IGNORED]))}


def curves(history: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """What the Trainer logged, reduced to what a reader wants to see."""
    wanted = ("step", "epoch", "loss", "eval_loss", "eval_top1", "learning_rate")
    rows = [{name: entry[name] for name in wanted if name in entry} for entry in history]
    return [row for row in rows if "loss" in row or "eval_loss" in row]
