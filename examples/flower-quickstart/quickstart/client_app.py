"""A client: trains the model it is sent on its own images, and tests it on others of them."""

from __future__ import annotations

from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from torch import nn
from torch.utils.data import TensorDataset

import tacit.flower
from quickstart.task import build, fit, load, score

app = ClientApp(mods=[tacit.flower.private_mod])


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train, and answer with the new weights."""
    model, data, _ = received(message, context)
    config = context.run_config
    loss = fit(model, data, epochs=int(config["local-epochs"]), rate=float(config["learning-rate"]))
    metrics = MetricRecord({"num-examples": len(data), "train_loss": loss})
    return Message(RecordDict({"arrays": ArrayRecord(model.state_dict()), "metrics": metrics}), reply_to=message)


@app.evaluate()
def evaluate(message: Message, context: Context) -> Message:
    """Answer how well the model does on images it was not trained on."""
    model, _, data = received(message, context)
    loss, accuracy = score(model, data)
    metrics = MetricRecord({"num-examples": len(data), "loss": loss, "accuracy": accuracy})
    return Message(RecordDict({"metrics": metrics}), reply_to=message)


def received(message: Message, context: Context) -> tuple[nn.Module, TensorDataset, TensorDataset]:
    """Return the model that came with a message, and this client's images."""
    model = build()
    model.load_state_dict(message.content.array_records["arrays"].to_torch_state_dict())
    train_set, test_set = load(int(context.node_config["partition-id"]), int(context.node_config["num-partitions"]))
    return model, train_set, test_set
