"""The network of Opacus' MNIST example at one learning rate. python examples/opacus_before.py mnist EPOCHS"""

import sys

import torch
from opacus import PrivacyEngine
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from dptune.training import load

DATA = load(sys.argv[1])
RECORDS, BATCH, SIDE = (60000, 300, 28) if sys.argv[1] == "mnist" else (1400, 140, 8)
STEPS = int(sys.argv[2]) * RECORDS // BATCH
PAD = [(28 - SIDE) // 2] * 4  # to MNIST's 28 pixels
X, TEST = (nn.functional.pad(torch.tensor(part.x).reshape(-1, 1, SIDE, SIDE), PAD) for part in (DATA.train, DATA.test))


def train(params, loader, engine):
    first = nn.Conv2d(1, 16, 8, 2, padding=3), nn.ReLU(), nn.MaxPool2d(2, 1), nn.Conv2d(16, 32, 4, 2), nn.ReLU()
    model = nn.Sequential(*first, nn.MaxPool2d(2, 1), nn.Flatten(), nn.Linear(512, 32), nn.ReLU(), nn.Linear(32, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=params["lr"])
    made = {"module": model, "optimizer": optimizer, "data_loader": loader, "max_grad_norm": 1.0}
    model, optimizer, loader = engine.make_private(**made, noise_multiplier=params["noise_multiplier"])
    for _ in range(STEPS * BATCH // RECORDS):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    with torch.no_grad():
        guesses = model(TEST).argmax(1).numpy()
    return model, (guesses == DATA.test.y).mean()  # on public records


if __name__ == "__main__":
    engine, records = PrivacyEngine(), TensorDataset(X, torch.tensor(DATA.train.y))
    model, accuracy = train({"lr": 1.0, "noise_multiplier": 2.0}, DataLoader(records, BATCH), engine)
    print(f"accuracy {accuracy:.3f}; epsilon {engine.get_epsilon(1e-5):.3f}, as if no other run had been tried")
