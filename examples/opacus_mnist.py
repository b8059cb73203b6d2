"""The same, its learning rate tuned with six changed lines. python examples/opacus_mnist.py mnist EPOCHS"""

import sys

import torch
from torch import nn

import dptune as dpt
from dptune.integrations.opacus import opacus_trainer
from dptune.training import load

DATA = load(sys.argv[1])
RECORDS, BATCH, SIDE = (60000, 300, 28) if sys.argv[1] == "mnist" else (1400, 140, 8)
STEPS = int(sys.argv[2]) * RECORDS // BATCH
PAD = [(28 - SIDE) // 2] * 4  # to MNIST's 28 pixels
X, TEST = (nn.functional.pad(torch.tensor(part.x).reshape(-1, 1, SIDE, SIDE), PAD) for part in (DATA.train, DATA.test))


@opacus_trainer(cost=lambda p: dpt.DpSgd(BATCH / RECORDS, p["noise_multiplier"], STEPS), records=RECORDS)
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
    records, space = (X, torch.tensor(DATA.train.y)), dpt.Space(lr=dpt.Float(0.1, 2, log=True))
    release = dpt.tune(records, trainer=train, space=space, classes=10, epsilon=4, delta=1e-5, dataset=sys.argv[1])
    print(f"epsilon {release.epsilon:.3f} for everything; {release.params}")
