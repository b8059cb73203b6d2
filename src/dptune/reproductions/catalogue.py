"""Every experiment of the papers by name: what it is, what it needs, and whether it can be run.

Importing this loads no experiment: each is loaded when it runs. A new one is a function ``(quick, say) -> Table`` in
its paper's file and an entry here; an experiment that nobody can run is listed with the reason. The list
stays in one file, so that it is read in one place.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dptune.reproductions.table import Table

__all__ = ["EXPERIMENTS", "Experiment", "Run"]

Say = Callable[[str], None]
Run = Callable[[bool, Say], "Table"]


@dataclass(frozen=True)
class Experiment:
    """One published figure or table."""

    name: str
    paper: str
    what: str
    run: Run | None = None
    needs: str = ""  # folders of DPTUNE_DATA, as needed.require reads them
    missing: str = ""  # why it cannot be run, or what of it is not in it

    @property
    def state(self) -> str:
        """ "ready", or why it does not run."""
        return "ready" if self.run is not None else f"cannot be run: {self.missing}"


def _ding_fig3(quick: bool, say: Say) -> Table:
    from dptune.reproductions.ding import fig3  # noqa: PLC0415 - only what is asked for is loaded

    del say
    return fig3(repeats=100) if quick else fig3()


def _ding_fig4(quick: bool, say: Say) -> Table:
    from dptune.reproductions.ding import fig4  # noqa: PLC0415 - only what is asked for is loaded

    del say
    return fig4(granularities=(0.1, 0.01)) if quick else fig4()


def _hypo_mnist_sim(quick: bool, say: Say) -> Table:
    from dptune.reproductions.hypo import landscape, mnist_sim  # noqa: PLC0415 - only what is asked for is loaded

    if not quick:
        return mnist_sim(progress=say)
    return mnist_sim(gammas=(0.03, 0.1), most=40, repeats=20, lay=lambda noise: landscape(noise, steps=40))


def _hypo_fig1_mnist(quick: bool, say: Say) -> Table:
    from dptune.reproductions.hypo_network import FULL, SMALL, fig1_mnist  # noqa: PLC0415 - only what is asked for

    return fig1_mnist(say, scale=SMALL if quick else FULL)


def _hypo_table1(quick: bool, say: Say) -> Table:
    from dptune.reproductions.hypo_network import FULL, SMALL, table1  # noqa: PLC0415 - only what is asked for

    return table1(say, scale=SMALL if quick else FULL)


def _hypo_fig1_cifar(quick: bool, say: Say) -> Table:
    from dptune.reproductions.hypo_cifar import FULL, SMALL, fig1_cifar  # noqa: PLC0415 - only what is asked for

    return fig1_cifar(say, scale=SMALL if quick else FULL)


def _hype_fig2(quick: bool, say: Say) -> Table:
    from dptune.reproductions.hype import hype_fig2  # noqa: PLC0415 - needs the extra 'flower'

    del say
    return hype_fig2(repetitions=500) if quick else hype_fig2()


def _hype_fig2a(quick: bool, say: Say) -> Table:
    from dptune.reproductions.hype_simulation import fig2a  # noqa: PLC0415 - needs the extra 'flower'

    return fig2a(say, repetitions=200) if quick else fig2a(say)


def _hype_fig2b(quick: bool, say: Say) -> Table:
    from dptune.reproductions.hype_simulation import fig2b  # noqa: PLC0415 - needs the extra 'flower'

    return fig2b(say, repetitions=200) if quick else fig2b(say)


def _hype_fig2c(quick: bool, say: Say) -> Table:
    from dptune.reproductions.hype_simulation import fig2c  # noqa: PLC0415 - needs the extra 'flower'

    return fig2c(say, candidates=(100, 300), repetitions=100) if quick else fig2c(say)


def _hype_fig4(quick: bool, say: Say) -> Table:
    from dptune.reproductions.hype_accuracy import FULL, SMALL, fig4  # noqa: PLC0415 - needs the extra 'flower'

    return fig4(say, scale=SMALL if quick else FULL)


def _hype_fig5(quick: bool, say: Say) -> Table:
    from dptune.reproductions.hype_accuracy import FULL, SMALL, fig5  # noqa: PLC0415 - needs the extra 'flower'

    return fig5(say, scale=SMALL if quick else FULL)


def _hype_fig12(quick: bool, say: Say) -> Table:
    from dptune.reproductions.hype_accuracy import FULL, SMALL, fig12  # noqa: PLC0415 - needs the extra 'flower'

    return fig12(say, scale=replace(SMALL, data=("mnist", "adult")) if quick else FULL)  # 12 settings fit, 18 do not


def _hype_table4(quick: bool, say: Say) -> Table:
    from dptune.reproductions.hype_resources import FULL, SMALL, table4  # noqa: PLC0415 - needs the extra 'flower'

    return table4(say, scale=SMALL if quick else FULL)


def _hype_fig4_linear(quick: bool, say: Say) -> Table:
    from dptune.reproductions.hype import hype_fig4  # noqa: PLC0415 - needs the extra 'flower'

    if not quick:
        return hype_fig4(progress=say)
    return hype_fig4(datasets=("adult",), clients=(50,), partitions=("iid",), repetitions=5, epochs=2, progress=say)


def _hype_fig9(quick: bool, say: Say) -> Table:
    from dptune.reproductions.hype_rivals import FULL, SMALL, fig9  # noqa: PLC0415 - needs the extra 'flower'

    return fig9(say, scale=SMALL if quick else FULL)


def _hype_fig10(quick: bool, say: Say) -> Table:
    from dptune.reproductions.hype_rivals import FULL, SMALL, fig10  # noqa: PLC0415 - needs the extra 'flower'

    return fig10(say, scale=SMALL if quick else FULL)


def _hype_fig11(quick: bool, say: Say) -> Table:
    from dptune.reproductions.hype_rivals import FULL, SMALL, fig11  # noqa: PLC0415 - needs the extra 'flower'

    return fig11(say, scale=SMALL if quick else FULL)


def _hype_rivals_cifar(quick: bool, say: Say) -> Table:
    from dptune.reproductions.hype_rivals_cifar import FULL, SMALL, rivals_cifar  # noqa: PLC0415 - needs 'flower'

    return rivals_cifar(say, scale=SMALL if quick else FULL)


def _hype_scales(quick: bool, say: Say) -> Table:
    from dptune.reproductions.hype_scales import hype_scales  # noqa: PLC0415 - needs the extra 'flower'

    del quick, say
    return hype_scales()


def _xiang_audit(quick: bool, say: Say) -> Table:
    from dptune.reproductions.xiang import xiang_audit  # noqa: PLC0415 - only what is asked for is loaded

    return xiang_audit(say, trained=100, empty=10**6, bases=(1.0, 4.0)) if quick else xiang_audit(say)


def _xiang_fig_bound(quick: bool, say: Say) -> Table:
    from dptune.reproductions.xiang_bounds import fig_bound  # noqa: PLC0415 - only what is asked for is loaded

    return fig_bound(say, means=(10.0,), laws=("geometric", "logarithmic")) if quick else fig_bound(say)


def _xiang_table(quick: bool, say: Say) -> Table:
    from dptune.reproductions.xiang_training import SMALL, full, table_accuracy  # noqa: PLC0415 - the same

    return table_accuracy(say, scale=SMALL if quick else full())


def _xiang_totals(quick: bool, say: Say) -> Table:
    from dptune.reproductions.xiang_bounds import table_accounting  # noqa: PLC0415 - only what is asked for is loaded

    return table_accounting(say, laws=("geometric",)) if quick else table_accounting(say)


def _koskela_fig1(quick: bool, say: Say) -> Table:
    from dptune.reproductions.koskela import fig1  # noqa: PLC0415 - only what is asked for is loaded

    return fig1(say, shares=(0.02, 0.3)) if quick else fig1(say)


def _koskela_fig2(quick: bool, say: Say) -> Table:
    from dptune.reproductions.koskela_tuning import FULL, SMALL, fig2  # noqa: PLC0415 - only what is asked for is loaded

    return fig2(say, scale=SMALL if quick else FULL)


def _koskela_fig3(quick: bool, say: Say) -> Table:
    from dptune.reproductions.koskela_tuning import FULL, SMALL, fig3  # noqa: PLC0415 - only what is asked for is loaded

    return fig3(say, scale=SMALL if quick else FULL)


def _koskela_fig4(quick: bool, say: Say) -> Table:
    from dptune.reproductions.koskela_joint import FULL, SMALL, fig4  # noqa: PLC0415 - only what is asked for is loaded

    return fig4(say, scale=SMALL if quick else FULL)


def _koskela_fig8(quick: bool, say: Say) -> Table:
    from dptune.reproductions.koskela_joint import ADAM, SMALL, fig8  # noqa: PLC0415 - only what is asked for is loaded

    return fig8(say, scale=SMALL if quick else ADAM)


def _koskela_fig4_accounting(quick: bool, say: Say) -> Table:
    from dptune.reproductions.koskela import fig4_accounting  # noqa: PLC0415 - only what is asked for is loaded

    return fig4_accounting(say, targets=(1.0,), grids=("CIFAR-10",)) if quick else fig4_accounting(say)


def _koskela_fig9(quick: bool, say: Say) -> Table:
    from dptune.reproductions.koskela import fig9  # noqa: PLC0415 - only what is asked for is loaded

    del quick
    return fig9(say)


def _koskela_savings(quick: bool, say: Say) -> Table:
    from dptune.reproductions.koskela import section34  # noqa: PLC0415 - only what is asked for is loaded

    del quick
    return section34(say)


def _papernot_steinke_fig7(quick: bool, say: Say) -> Table:
    from dptune.reproductions.papernot_steinke import fig7  # noqa: PLC0415 - only what is asked for is loaded

    return fig7(say, means=(3.0, 30.0)) if quick else fig7(say)


def _liu_talwar(quick: bool, say: Say) -> Table:
    from dptune.reproductions.liu_talwar import liu_talwar  # noqa: PLC0415 - only what is asked for is loaded

    return liu_talwar(say, pures=(1.0,), noises=(4.0,), means=(2.0, 100.0)) if quick else liu_talwar(say)


_DING, _HYPE, _HYPO = "Ding et al.", "DP-Hype", "DP-HyPO"
_KOSKELA, _XIANG = "Koskela and Kulkarni", "Xiang et al."

EXPERIMENTS = {
    one.name: one
    for one in (
        Experiment("ding-fig3", _DING, "fidelity of the choice over rounds", _ding_fig3),
        Experiment("ding-fig4", _DING, "number of rounds against log n", _ding_fig4),
        Experiment("hypo-mnist-sim", _HYPO, "Table 1 in small: GP against uniform on an MNIST landscape",
                   _hypo_mnist_sim, "mnist"),
        Experiment("hypo-fig1-mnist", _HYPO, "GP against uniform over fixed T, their network", _hypo_fig1_mnist,
                   "mnist", "10 epochs and five trainings a cell; sizes are cut"),
        Experiment("hypo-table1", _HYPO, "GP against uniform over gamma, their network", _hypo_table1,
                   "mnist", "10 epochs and five trainings a cell; sizes are cut"),
        Experiment("hypo-fig1-cifar", _HYPO, "GP against uniform on a 50 x 50 landscape of CIFAR-10", _hypo_fig1_cifar,
                   "cifar-10-batches-bin", "10 epochs; BoTorch; sizes are cut"),
        Experiment("hypo-table2", _HYPO, "GP against uniform, federated task", missing="its data are proprietary"),
        Experiment("hype-fig2", _HYPE, "success of the vote on simulated losses", _hype_fig2),
        Experiment("hype-fig2a", _HYPE, "the same over the overlap of losses", _hype_fig2a),
        Experiment("hype-fig2b", _HYPE, "the same over the number of good candidates", _hype_fig2b),
        Experiment("hype-fig2c", _HYPE, "the same over the number of candidates", _hype_fig2c),
        Experiment("hype-fig4", _HYPE, "accuracy after the vote, i.i.d. clients, small networks", _hype_fig4,
                   "mnist, cifar-10-batches-bin, adult", "the paper's own networks; sizes are cut"),
        Experiment("hype-fig4-linear", _HYPE, "the same with linear models, and the rivals", _hype_fig4_linear,
                   "mnist, adult", "CIFAR-10 and n = 250; linear models stand in for the networks"),
        Experiment("hype-fig5", _HYPE, "the same for non-i.i.d. clients, small networks", _hype_fig5,
                   "mnist, cifar-10-batches-bin, adult",
                   "n = 50 and 250 (hype-fig12); the paper's own networks; sizes are cut"),
        Experiment("hype-fig12", _HYPE, "the same for 250 and 50 clients (Figures 12 and 13)", _hype_fig12,
                   "mnist, adult; in full cifar-10-batches-bin", "the paper's own networks; sizes are cut"),
        Experiment("hype-fig9", _HYPE, "binary votes against raw losses", _hype_fig9, "mnist",
                   "CIFAR-10 (hype-rivals-cifar); linear models stand in for the networks"),
        Experiment("hype-fig10", _HYPE, "votes against subsets", _hype_fig10, "mnist",
                   "CIFAR-10 (hype-rivals-cifar); linear models stand in for the networks"),
        Experiment("hype-fig11", _HYPE, "votes against Feathers", _hype_fig11, "mnist",
                   "CIFAR-10 (hype-rivals-cifar); linear models stand in for the networks"),
        Experiment("hype-rivals-cifar", _HYPE, "votes against all three, CIFAR-10, small networks", _hype_rivals_cifar,
                   "cifar-10-batches-bin", "the paper's own network; sizes are cut"),
        Experiment("hype-table4", _HYPE, "time and bandwidth of the vote, our sum beside SecAgg+", _hype_table4,
                   "mnist, cifar-10-batches-bin, adult", "memory of a graphics card; SecAgg+ at n = 250"),
        Experiment("hype-scales", _HYPE, "the five noise scales of section V-C", _hype_scales),
        Experiment("koskela-fig1", _KOSKELA, "bounds of both variants over q", _koskela_fig1),
        Experiment("koskela-fig2", _KOSKELA, "learning-rate tuning with DP-SGD", _koskela_fig2,
                   "fashion-mnist, mnist; in full cifar-10-batches-bin, imdb",
                   "their ResNet20 and IMDB network; sizes are cut"),
        Experiment("koskela-fig3", _KOSKELA, "learning-rate tuning with DP-Adam", _koskela_fig3,
                   "fashion-mnist, mnist; in full cifar-10-batches-bin, imdb",
                   "their ResNet20 and IMDB network; sizes are cut"),
        Experiment("koskela-fig4", _KOSKELA, "all hyperparameters tuned with DP-SGD", _koskela_fig4,
                   "fashion-mnist; in full cifar-10-batches-bin, imdb, mnist",
                   "their ResNet20 and IMDB network; sizes are cut"),
        Experiment("koskela-fig8", _KOSKELA, "all hyperparameters tuned with DP-Adam", _koskela_fig8,
                   "fashion-mnist; in full cifar-10-batches-bin", "MNIST and IMDB; their ResNet20; sizes are cut"),
        Experiment("koskela-fig4-accounting", _KOSKELA, "what tuning all hyperparameters costs",
                   _koskela_fig4_accounting),
        Experiment("koskela-fig9", _KOSKELA, "Renyi curves and their lines", _koskela_fig9),
        Experiment("koskela-savings", _KOSKELA, "gradient evaluations, section 3.4", _koskela_savings),
        Experiment("liu-talwar", "Liu and Talwar", "known threshold and random stopping", _liu_talwar),
        Experiment("papernot-steinke-fig7", "Papernot and Steinke", "accuracy of the best of K against epsilon",
                   _papernot_steinke_fig7, "papernot-steinke"),
        Experiment("xiang-audit", _XIANG, "three audits and a fourth", _xiang_audit),
        Experiment("xiang-fig-bound", _XIANG, "upper bounds for the base of epsilon 4.36", _xiang_fig_bound),
        Experiment("xiang-table", _XIANG, "accuracy at the same total by three bounds", _xiang_table,
                   "mnist, fashion-mnist; in full cifar-10-batches-bin",
                   "SVHN, unless its files are in svhn/; their network and law are not named"),
        Experiment("xiang-totals", _XIANG, "the totals of the accuracy table", _xiang_totals),
    )
}  # fmt: skip
"""By name, in the order of ``dptune reproduce --list``."""
