"""The same, its learning rate tuned privately with six changed lines. python examples/opacus_mnist.py digits"""

import sys

import torch
from torch import nn

import dptune as dpt
from dptune.integrations.opacus import opacus_trainer
from dptune.training import load

DATA = load(sys.argv[1])
SIDE = round(DATA.train.features**0.5)
RECORDS, BATCH, STEPS = (60000, 300, 800) if sys.argv[1] == "mnist" else (1400, 140, 40)
X, Y = torch.tensor(DATA.train.x).reshape(-1, 1, SIDE, SIDE), torch.tensor(DATA.train.y)


@opacus_trainer(cost=lambda p: dpt.DpSgd(BATCH / RECORDS, p["noise_multiplier"], STEPS), records=RECORDS)
def train(params, loader, engine):
    model = nn.Sequential(nn.Conv2d(1, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(144, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=params["lr"])
    made = {"module": model, "optimizer": optimizer, "data_loader": loader, "max_grad_norm": 1.0}
    model, optimizer, loader = engine.make_private(**made, noise_multiplier=params["noise_multiplier"])
    for _ in range(STEPS * BATCH // RECORDS):
        for x, y in loader:
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
    with torch.no_grad():
        guesses = model(torch.tensor(DATA.test.x).reshape(-1, 1, SIDE, SIDE)).argmax(1).numpy()
    return model, (guesses == DATA.test.y).mean()  # on public records


if __name__ == "__main__":
    space = dpt.Space(lr=dpt.Float(0.1, 10, log=True))
    release = dpt.tune((X, Y), trainer=train, space=space, classes=10, epsilon=4, delta=1e-5, dataset=sys.argv[1])
    print(f"epsilon {release.epsilon:.3f} for everything; {release.params}")
