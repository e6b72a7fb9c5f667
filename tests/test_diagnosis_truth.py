"""Equations of which a diagnosis could easily say something false: what it says is held to what is known."""

from __future__ import annotations

import math

import pytest
import torch
from diagnosis_cases import D, robertson
from torch import Tensor, nn

import proxode
from proxode.analysis import Diagnosis, diagnose


def T(*entries: float) -> Tensor:
    return torch.tensor(entries, dtype=D)


def said(d: Diagnosis) -> str:
    return " ".join(str(d).split())


# Samples


def rotors(t: Tensor, y: Tensor) -> Tensor:
    """Rows q1, q2, p1, p2: those of one parity know of each other."""
    w = T(1.0, 100.0)[:, None]
    return torch.cat([y[2:], -(w**2) * y[:2]])


def sums(t: Tensor, y: Tensor) -> Tensor:
    """A coupling that no product shows where all is zero."""
    return -T(1.0, 50.0, 1.0)[:, None] * y + y.sum(0) ** 2


def last_by_first(t: Tensor, y: Tensor) -> Tensor:
    rates = torch.logspace(0, 3, 13, dtype=D)[:, None]
    return -rates * y + torch.cat([torch.zeros_like(y[1:]), 0.1 * y[:1]])


@pytest.mark.parametrize(
    ("func", "y0"),
    [
        (rotors, torch.tensor([[1.0, 2.0], [1.0, 1.0], [0.0, 1.0], [0.0, 0.0]], dtype=D)),
        (sums, torch.zeros(3, 2, dtype=D)),
        (last_by_first, torch.ones(13, 2, dtype=D)),
    ],
)
def test_rows_that_know_of_each_other_are_not_called_independent(func, y0: Tensor) -> None:  # type: ignore[no-untyped-def]
    d = diagnose(func, y0, 0.0, 1.0)
    assert d.samples is not None and not d.samples.independent
    assert not any("per_sample" in finding for finding in d.findings)


def test_a_coupling_that_begins_later_is_seen() -> None:
    rates = T(1.0, 50.0, 1.0)[:, None]
    d = diagnose(lambda t, y: -rates * y + torch.where(t > 0.4, y.roll(1, 0), 0.0), torch.ones(3, 2, dtype=D), 0.0, 1.0)
    assert d.samples is not None and not d.samples.independent


# Symmetry


def diffusion_and_a_rotor(t: Tensor, y: Tensor) -> Tensor:
    u, q, p = y[:200], y[200], y[201]
    return torch.cat([torch.roll(u, 1) + torch.roll(u, -1) - 2 * u, torch.stack([300 * p, -300 * q])])


def test_one_rotating_pair_among_200_is_found() -> None:
    d = diagnose(diffusion_and_a_rotor, torch.linspace(0, 1, 202, dtype=D), 0.0, 1.0)
    assert not d.gradient_field and d.imaginary == pytest.approx(300, rel=1e-3)


def test_arnoldi_itself_sees_what_the_probes_did_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("proxode.analysis.spectrum.asymmetry_of", lambda products, probes: 0.0)
    d = diagnose(diffusion_and_a_rotor, torch.linspace(0, 1, 202, dtype=D), 0.0, 1.0, points=2)
    assert not d.gradient_field and d.imaginary == pytest.approx(300, rel=1e-3)


@pytest.mark.parametrize(("i", "j"), [(3, 7), (150, 30), (0, 199)])
def test_one_entry_alone_is_seen_and_its_size_is_about_right(i: int, j: int) -> None:
    rates, only = torch.linspace(1, 100, 200, dtype=D), torch.zeros(200, dtype=D)
    only[i] = 200.0
    d = diagnose(lambda t, y: -rates * y + only * y[j], torch.ones(200, dtype=D), 0.0, 1.0)
    true = 200 * math.sqrt(2 / (float(rates @ rates) + 200**2))
    assert not d.gradient_field and d.asymmetry == pytest.approx(true, rel=0.35)


def centred(t: Tensor, y: Tensor) -> Tensor:
    return -len(y) / 2 * (torch.roll(y, -1) - torch.roll(y, 1))


def bump(n: int) -> Tensor:
    return torch.exp(-200 * (torch.arange(n, dtype=D) / n - 0.5) ** 2)


def test_asymmetry_is_never_more_than_that_of_an_antisymmetric_matrix() -> None:
    d = diagnose(centred, bump(1000), 0.0, 0.05)
    assert 1.0 < d.asymmetry <= 2.0 and d.normal and "not normal" not in said(d)


def test_ritz_values_of_a_matrix_that_is_not_normal_are_not_called_eigenvalues() -> None:
    def inflow(t: Tensor, y: Tensor) -> Tensor:  # every eigenvalue is -1000
        return -1000 * (y - torch.cat([y.new_zeros(1), y[:-1]]))

    d = diagnose(inflow, bump(1000), 0.0, 0.02)
    assert not d.normal and "field of values" in said(d) and "is at least" not in said(d)
    ring = diagnose(lambda t, y: -1000 * (y - torch.roll(y, 1)), bump(1000), 0.0, 0.02)
    assert ring.normal and not ring.gradient_field  # a circulant is normal


# What autograd sees


def test_an_f_that_detaches_a_part_is_diagnosed_by_differences() -> None:
    d = diagnose(lambda t, y: torch.stack([-100 * y[0].detach() + y[1], -y[1]]), T(1, 2), 0.0, 10.0)
    assert d.left == pytest.approx(-100, rel=1e-3) and d.products == "difference"
    assert d.advice.stiffness != "not stiff" and d.advice.gradient == "none"
    assert any("lack, or have wrong" in finding for finding in d.findings)


def test_an_f_that_does_not_use_y_has_gradients() -> None:
    p = nn.Parameter(T(2.0)[0])
    d = diagnose(lambda t, y: p * torch.cos(t) * torch.ones_like(y), T(1, 2), 0.0, 10.0)
    assert d.advice.gradient == "implicit"
    assert diagnose(lambda t, y: torch.full_like(y, 3.0), T(1, 2), 0.0, 1.0).advice.gradient == "implicit"


# Time and chance


def test_an_f_that_is_nan_at_other_times_depends_on_t() -> None:
    d = diagnose(lambda t, y: torch.where(t < 0.9, 0.0, math.nan) - y, T(0, 0), 0.0, 2.0)
    assert not d.autonomous and "does not depend on t" not in said(d)


@pytest.mark.parametrize(
    "func",
    [
        lambda t, y: 1 - nn.functional.dropout(y, 0.1),
        lambda t, y: -y + (1e-3 * torch.randn_like(y) if t > 0.5 else 0 * y),
    ],
)
def test_noise_that_is_silent_at_first_is_heard(func) -> None:  # type: ignore[no-untyped-def]
    d = diagnose(func, torch.zeros(8, dtype=D), 0.0, 1.0)
    assert d.randomness > 1e-6 and any("f is random" in finding for finding in d.findings)


def test_running_statistics_of_modules_are_left_alone() -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 3))
    before = {name: buffer.clone() for name, buffer in net.named_buffers()}

    class Field(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net

        def forward(self, t: Tensor, y: Tensor) -> Tensor:
            return net(y)

    for func in (Field(), lambda t, y: net(y), Field().forward):
        diagnose(func, torch.randn(16, 3), 0.0, 1.0)
        assert all(torch.equal(buffer, before[name]) for name, buffer in net.named_buffers())


# Small things


def test_growth_without_oscillation_is_no_ripple() -> None:
    d = diagnose(lambda t, y: 2000 * y * (1 - y), T(1e-8), 0.0, 10.0)
    assert "oscillation" not in said(d) and all(cost.nfe_forward > 0 for cost in d.advice.costs)
    assert any("the only component never exceeds atol" in finding for finding in d.findings)


@pytest.mark.parametrize("points", [1, 2, 3, 7])
def test_as_many_places_are_probed_as_were_asked_for(points: int) -> None:
    assert len(diagnose(robertson, T(1, 0, 0), 0.0, 10.0, points=points).places) == points


def test_a_tolerance_of_ones_own_is_not_answered_with_the_advice_to_give_one() -> None:
    d = diagnose(robertson, T(1, 0, 0), 0.0, 1e3, atol=T(1e-4, 1e-9, 1e-4))
    assert not any("atol" in finding for finding in d.findings)
    assert any("atol" in finding for finding in diagnose(robertson, T(1, 0, 0), 0.0, 1e3, atol=1e-4).findings)


def test_one_unknown_is_one_and_rtol_speaks_of_the_method() -> None:
    stiff = diagnose(lambda t, y: -1e4 * (y - torch.cos(t)), T(1), 0.0, 10.0)
    assert "newton: 1 unknown:" in said(stiff)
    tight = diagnose(lambda t, y: torch.cos(t) - y, T(1), 0.0, 10.0, rtol=1e-9, atol=1e-11)
    assert tight.advice.method == "dopri8" and "order 5" not in said(tight)


# Jumps and pulses in time


def infusions(t: Tensor, y: Tensor) -> Tensor:
    """Three compartments, and a drug that flows in twice for a short while."""
    exchange = torch.tensor([[-1.2, 0.4, 0.1], [0.4, -0.4, 0.0], [0.1, 0.0, -0.1]], dtype=D)
    flows = ((t > 5) & (t < 5.02)) | ((t > 12) & (t < 12.02))
    return exchange @ y + torch.where(flows, 50.0, 0.0) * T(1, 0, 0)


@pytest.mark.parametrize("options", [{}, {"method": "bdf"}])
def test_pulses_that_steps_have_crossed_are_found_with_their_times(options: dict[str, str]) -> None:
    d = diagnose(infusions, T(1, 0, 0), 0.0, 24.0, **options)
    assert d.clock.jumps == pytest.approx((5.0, 5.02, 12.0, 12.02), abs=1e-6) and not d.autonomous
    assert any("5, 5.02, 12, 12.02" in finding and "jump_t" in finding for finding in d.findings)
    a, b = next(finding for finding in d.findings if "does not fulfil" in finding), d.clock.crossed
    assert b is not None and b[0] < 5 and b[1] > 5.02 and f"t = {b[0]:.6g}" in a


def test_jumps_that_were_given_are_not_told_again() -> None:
    d = diagnose(infusions, T(1, 0, 0), 0.0, 24.0, jump_t=T(5, 5.02, 12, 12.02))
    assert not d.autonomous and not d.clock.jumps and "jump_t" not in said(d) and "fulfil" not in said(d)


def test_a_short_smooth_pulse_is_found_and_what_is_only_fast_is_none() -> None:
    d = diagnose(lambda t, y: -y + 100 * torch.exp(-(((t - 5.37) / 0.003) ** 2)), T(1, 2), 0.0, 10.0)
    assert len(d.clock.pulses) == 1 and d.clock.pulses[0][0] < 5.37 < d.clock.pulses[0][1]
    assert any("does not fulfil" in finding for finding in d.findings)
    for func in (
        lambda t, y: -y + torch.sin(300 * t),
        lambda t, y: -(1 + 1e5 * torch.sigmoid(50 * (t - 9))) * (y - torch.cos(t)),
        lambda t, y: -y + 100 * torch.exp(-(((t - 5.37) / 0.1) ** 2)),
    ):
        clock = diagnose(func, T(1, 2), 0.0, 10.0).clock
        assert clock.varies and not (clock.jumps or clock.pulses or clock.crossed)


def test_an_f_that_does_not_read_the_clock_is_not_asked_about_it() -> None:
    asked = diagnose(lambda t, y: -y * (1 + 0 * t), T(1, 2), 0.0, 1.0)
    spared = diagnose(lambda t, y: -y * torch.ones((), dtype=t.dtype), T(1, 2), 0.0, 1.0)
    assert spared.nfe_probes < 400 < asked.nfe_probes and spared.autonomous and asked.autonomous


def test_a_clock_that_runs_backwards_and_one_in_single_precision() -> None:
    wave = diagnose(lambda t, y: torch.sign(torch.sin(t)) - y, T(1), 10.0, 5.0)
    assert wave.clock.jumps == pytest.approx((3 * math.pi, 2 * math.pi), abs=1e-6)
    single = diagnose(lambda t, y: torch.floor(t) - y, torch.ones(2), 0.5, 4.5)
    assert single.clock.jumps == pytest.approx((1, 2, 3, 4), abs=1e-5)


def test_the_times_that_are_advised_for_smooth_pulses_cure_the_solve() -> None:
    def f(t: Tensor, y: Tensor) -> Tensor:
        return sum(60.0 * torch.exp(-(((t - p) / 0.01) ** 2)) for p in (3.0, 9.0)) - 0.1 * y

    y0 = T(0)
    d = diagnose(f, y0, 0.0, 24.0)
    said = [finding for finding in d.findings if "both times as `jump_t`" in finding]
    assert len(said) == len(d.clock.pulses) == 2
    right, plain, told = (
        proxode.solve(f, y0, 0.0, 24.0, **options).ys[-1]
        for options in ({"max_step": 5e-3}, {}, {"jump_t": torch.tensor(d.clock.pulses, dtype=D).flatten()})
    )
    assert float((plain - right).abs()) > 0.1 * float(right)  # a step has crossed them
    assert float((told - right).abs()) < 1e-3 * float(right)


def test_a_pulse_of_several_samples_and_a_front_are_found_and_ulps_of_the_time_are_none() -> None:
    for centre in (5.0, 5.02, 5.26):
        pulse = diagnose(lambda t, y, c=centre: -y + 1e4 * torch.exp(-(((t - c) / 0.01) ** 2)), T(1, 2), 0.0, 10.0)
        assert any(a < centre < b for a, b in pulse.clock.pulses)
    front = diagnose(lambda t, y: -y + torch.tanh(1e4 * (t - 5.1)), T(1, 2), 0.0, 10.0)
    assert any(a < 5.1 < b for a, b in front.clock.pulses) or any(abs(t - 5.1) < 1e-3 for t in front.clock.jumps)
    late = diagnose(lambda t, y: -y + torch.sin(t), torch.ones(2), 1e6, 1e6 + 10)
    assert not late.clock.jumps and not any("does not fulfil" in finding for finding in late.findings)


def test_a_change_that_was_given_is_not_told_again_and_times_are_told_in_full() -> None:
    """A cusp: as steep as a jump, and no jump."""
    from proxode.analysis.findings import in_full

    def cusp(t: Tensor, y: Tensor) -> Tensor:
        return 5 * (t - 6.0).clamp(min=0) ** 0.2 * (t < 9) - y

    y0 = torch.ones(1, dtype=torch.float64)
    told = diagnose(cusp, y0, 0.0, 24.0).findings
    assert any("9" in finding and "jump_t" in finding for finding in told)
    given = diagnose(cusp, y0, 0.0, 24.0, jump_t=torch.tensor([6.0, 9.0], dtype=torch.float64))
    assert not any("jump_t" in finding for finding in given.findings)
    assert in_full(5.99999945, 6.00000003) == "5.99999945" and in_full(6.0, 24.0) == "6"


def test_the_same_jump_twice_is_one() -> None:
    marks = torch.tensor([1.0, 1.0, 2.0], dtype=torch.float64)
    for method in ("auto", "bdf", "dopri5"):
        solution = proxode.solve(lambda t, y: -y + (t > 1) * 1.0, torch.ones(2), 0.0, 3.0, jump_t=marks, method=method)
        assert solution.status.ok
        assert solution.ys[-1].tolist() == pytest.approx([1 + (math.exp(-1) - 1) * math.exp(-2)] * 2, rel=1e-3)


def test_marks_that_fall_on_one_output_are_one_and_others_stay_apart() -> None:
    y0, marks = T(0.0), T(1.0, 1.0 + 5e-7)
    for method in ("auto", "bdf", "dopri5"):
        settings = {"save_at": T(0.0, 1.0, 2.0), "jump_t": marks, "method": method}
        assert proxode.solve(lambda t, y: torch.ones_like(y), y0, 0.0, 2.0, **settings).status.ok

    def spike(t: Tensor, y: Tensor) -> Tensor:
        return torch.where((t >= 0.5) & (t < 0.5 + 1e-6), 1e6, 0.0) * torch.ones_like(y)

    told = proxode.solve(spike, y0, 0.0, 1.0, jump_t=T(0.5, 0.5 + 1e-6, 1.7e9), method="dopri5")
    assert float(told.ys[-1]) == pytest.approx(1.0, abs=1e-9)


def test_a_pulse_that_was_given_on_both_sides_is_not_told_again() -> None:
    def pulse(t: Tensor, y: Tensor) -> Tensor:
        return -y + 50 * torch.exp(-(((t - 3) / 0.02) ** 2))

    given = diagnose(pulse, torch.ones(3, dtype=D), 0.0, 20.0, jump_t=T(2.9, 3.1))
    assert not any("jump_t" in finding for finding in given.findings)
