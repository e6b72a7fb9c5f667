"""GRAND: the classes of the papers of Cora by diffusion on the graph of their citations.

Features are embedded, diffuse along the edges with learned attention, du/dt = A(u) u - u, and are read out
(Chamberlain et al. 2021). The data are one file, cora.npz; where it is missing the error says how to get it, or

    python -c "import proxode.data; proxode.data.fetch('cora', 'data')"
    python -m examples.grand_cora --data-dir data
"""

import argparse

import torch
from torch.nn.functional import cross_entropy

from proxode.data import load_graph, random_split
from proxode.nn import GRAND, Edges


def make(graph, t1):
    edges = Edges(graph.target, graph.source, graph.nodes)
    return GRAND(
        edges, graph.features.shape[1], graph.classes, hidden=32, heads=4, t1=t1, scale=None,
        input_dropout=0.5, dropout=0.5, rtol=1e-2, atol=1e-2,  # loose, with the exact gradient of that loose solve
    )  # fmt: skip


@torch.no_grad()
def accuracy(model, graph, nodes):
    model.eval()
    right = model(graph.features)[nodes].argmax(1) == graph.labels[nodes]
    model.train()
    return right.double().mean().item()


def train(model, graph, split, epochs):
    """The training loss of every epoch, and the test accuracy where that on the validation nodes was best."""
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, weight_decay=2e-2)
    losses, best = [], (0.0, 0.0)
    for epoch in range(epochs):
        loss = cross_entropy(model(graph.features)[split.train], graph.labels[split.train])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if epoch % 10 == 9 or epoch == epochs - 1:
            cost = model.ode.stats  # of the last solve, its backward pass included
            nfe = f"{cost.nfe_forward} + {cost.nfe_backward}"
            now = accuracy(model, graph, split.validation), accuracy(model, graph, split.test)
            best = max(best, now)
            print(f"epoch {epoch:3d}  loss {loss.item():.3f}  validation {now[0]:.3f}  NFE {nfe}", flush=True)
    return losses, best[1]


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data-dir", help="folder with cora.npz; by default that of the variable PROXODE_DATA")
    parser.add_argument("--epochs", type=int, default=60)
    parser.add_argument("--t1", type=float, default=10.0, help="how long the features diffuse")
    given = parser.parse_args(argv)
    try:
        graph = load_graph("cora", given.data_dir)
    except FileNotFoundError as missing:
        raise SystemExit(str(missing)) from None
    torch.manual_seed(0)
    split = random_split(graph.labels, seed=0, per_class=20, development=1500)
    print(f"{graph.nodes} papers, {graph.edges} citations, {graph.classes} classes, {len(split.train)} labels known")
    losses, tested = train(make(graph, given.t1), graph, split, given.epochs)
    print(f"accuracy on papers that no training saw: {tested:.3f}")
    return losses, tested


if __name__ == "__main__":
    main()
