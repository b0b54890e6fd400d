# SPDX-License-Identifier: BSL-1.0
"""Dumps ten JAX training steps, compiled for the CPU, and compares XLA's memory with the peak that remat-plan computes.

    python3 -m venv build/jax && build/jax/bin/pip install "jax[cpu]"
    build/jax/bin/python bench/hlo/dump_jax.py build/hlo [--program build/release/examples/remat-plan] [--only mlp,rnn]

OUT/NAME.hlo.txt is what compiled.as_text() returns, and OUT/memory.json what compiled.memory_analysis() says. A step
whose files are there is not compiled again. With a program, the script prints a table as Markdown. Sizes are in MB (10^6 bytes):

    arguments, outputs, alias, temp   XLA's own figures
    XLA                               arguments + outputs - alias + temp
    ours                              the peak of the listed order, and the arguments that are not donated
    differs                           ours against XLA, in %
    -20 %, -40 %                      the time that it costs (%) to have a peak of 80 and 60 % of the listed order's
"""

import argparse
import json
import pathlib
import subprocess
import sys

import jax
import jax.numpy as jnp

KEY = jax.random.PRNGKey(0)


def weights(*shapes):
    """Arrays of these shapes; only their sizes matter."""
    return [jax.random.normal(key, s) * 0.02 for key, s in zip(jax.random.split(KEY, len(shapes)), shapes)]


def descend(loss):
    """A step of gradient descent."""
    def step(w, *batch):
        value, g = jax.value_and_grad(loss)(w, *batch)
        return jax.tree.map(lambda p, d: p - 1e-3 * d, w, g), value
    return step


def adam(loss):
    """A step of Adam; the state is the parameters and two moments."""
    def step(state, *batch):
        w, m, v = state
        value, g = jax.value_and_grad(loss)(w, *batch)
        m = jax.tree.map(lambda a, d: 0.9 * a + 0.1 * d, m, g)
        v = jax.tree.map(lambda a, d: 0.999 * a + 0.001 * d * d, v, g)
        return (jax.tree.map(lambda p, a, b: p - 1e-3 * a / (jnp.sqrt(b) + 1e-8), w, m, v), m, v), value
    return step


def with_moments(w):
    return w, jax.tree.map(jnp.zeros_like, w), jax.tree.map(jnp.zeros_like, w)


def cross_entropy(logits, labels):
    return -jnp.mean(jnp.take_along_axis(jax.nn.log_softmax(logits), labels[..., None], -1))


def normalized(x):
    return (x - x.mean(-1, keepdims=True)) / jnp.sqrt(x.var(-1, keepdims=True) + 1e-5)


def mlp():
    def loss(w, x, y):
        for p in w[:-1]:
            x = jax.nn.gelu(x @ p)
        return cross_entropy(x @ w[-1], y)
    return descend(loss), weights(*[(512, 512)] * 8, (512, 10)), [jnp.ones((2048, 512)), jnp.zeros(2048, int)]


def attention(x, qkv, out, heads=8):
    b, s, d = x.shape
    q, k, v = jnp.split((normalized(x) @ qkv).reshape(b, s, heads, 3 * d // heads), 3, -1)
    a = jnp.einsum("bqhd,bkhd->bhqk", q, k) / (d // heads) ** 0.5
    a = jax.nn.softmax(jnp.where(jnp.tril(jnp.ones((s, s), bool)), a, -1e9))
    return x + jnp.einsum("bhqk,bkhd->bqhd", a, v).reshape(b, s, d) @ out


def block(x, w):
    x = attention(x, w[0], w[1])
    return x + jax.nn.gelu(normalized(x) @ w[2]) @ w[3]


def block_weights(d):
    return weights((d, 3 * d), (d, d), (d, 4 * d), (4 * d, d))


def gpt2_loss(w, tokens):
    x = w["embedding"][tokens] + w["position"]
    for layer in w["layers"]:
        x = block(x, layer)
    return cross_entropy(normalized(x) @ w["embedding"].T, tokens)


def gpt2_weights(layers=6, d=384, s=256, vocabulary=8192):
    embedding, position = weights((vocabulary, d), (s, d))
    return {"embedding": embedding, "position": position, "layers": [block_weights(d) for _ in range(layers)]}


def gpt2():
    return adam(gpt2_loss), with_moments(gpt2_weights()), [jnp.zeros((8, 256), int)]


def scanned_loss(layer):
    def loss(w, x):
        x, _ = jax.lax.scan(lambda h, p: (layer(h, p), None), x, w)
        return jnp.mean(x ** 2)
    return loss


def scanned(layer=block):
    w = [jnp.stack([p] * 8) for p in block_weights(256)]
    return descend(scanned_loss(layer)), w, [jnp.ones((8, 256, 256))]


def scanned_remat():
    return scanned(jax.checkpoint(block))


def convolve(x, w, stride=1):
    return jax.lax.conv_general_dilated(x, w, (stride, stride), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC"))


def batch_norm(x):
    return (x - x.mean((0, 1, 2))) / jnp.sqrt(x.var((0, 1, 2)) + 1e-5)


def resnet():
    widths = [64, 64, 128, 256, 512]

    def loss(w, x, y):
        x = jax.nn.relu(batch_norm(convolve(x, w["stem"], 2)))
        for first, second, skip, stride in zip(w["first"], w["second"], w["skip"], [1, 1, 2, 1, 2, 1, 2, 1]):
            h = jax.nn.relu(batch_norm(convolve(x, first, stride)))
            x = jax.nn.relu(batch_norm(convolve(h, second)) + convolve(x, skip, stride))
        return cross_entropy(x.mean((1, 2)) @ w["head"], y)

    pairs = [(a, b) for i, b in enumerate(widths[1:], 1) for a in (widths[i - 1], b)]
    w = {"stem": weights((7, 7, 3, 64))[0], "head": weights((512, 100))[0],
         "first": weights(*[(3, 3, a, b) for a, b in pairs]), "second": weights(*[(3, 3, b, b) for _, b in pairs]),
         "skip": weights(*[(1, 1, a, b) for a, b in pairs])}
    return descend(loss), w, [jnp.ones((16, 112, 112, 3)), jnp.zeros(16, int)]


def unet():
    widths = [32, 64, 128, 256]

    def loss(w, x, y):
        kept = []
        for a, b in w["down"]:
            x = jax.nn.relu(convolve(jax.nn.relu(convolve(x, a)), b))
            kept.append(x)
            x = jax.lax.reduce_window(x, -jnp.inf, jax.lax.max, (1, 2, 2, 1), (1, 2, 2, 1), "VALID")
        for a, b in reversed(w["up"]):
            x = jnp.concatenate([jnp.repeat(jnp.repeat(x, 2, 1), 2, 2), kept.pop()], -1)
            x = jax.nn.relu(convolve(jax.nn.relu(convolve(x, a)), b))
        return jnp.mean((convolve(x, w["out"]) - y) ** 2)

    down = [tuple(weights((3, 3, a, b), (3, 3, b, b))) for a, b in zip([3, *widths], widths)]
    up = [tuple(weights((3, 3, below + here, here), (3, 3, here, here)))
          for below, here in zip([*widths[1:], widths[-1]], widths)]
    w = {"down": down, "up": up, "out": weights((1, 1, 32, 3))[0]}
    image = jnp.ones((4, 128, 128, 3))
    return descend(loss), w, [image, image]


def moe(experts=8, d=256, tokens=2048):
    capacity = 2 * tokens // experts

    def loss(w, x):
        for gate, up, down in w:
            weight = jax.nn.softmax(x @ gate)
            chosen = jax.nn.one_hot(weight.argmax(-1), experts)
            place = (jnp.cumsum(chosen, 0) - 1) * chosen
            send = chosen[..., None] * jax.nn.one_hot(place.sum(-1).astype(int), capacity)[:, None]
            inside = jax.nn.gelu(jnp.einsum("td,tec,edf->ecf", x, send, up))
            x = x + jnp.einsum("ecf,efd,tec,te->td", inside, down, send, weight)
        return jnp.mean(x ** 2)
    layers = [tuple(weights((d, experts), (experts, d, 4 * d), (experts, 4 * d, d))) for _ in range(3)]
    return descend(loss), layers, [jnp.ones((tokens, d))]


def rnn(d=256, length=128):
    def loss(w, xs):
        def cell(state, x):
            h, c = state
            i, f, g, o = jnp.split(jnp.concatenate([x, h], -1) @ w[0], 4, -1)
            c = jax.nn.sigmoid(f) * c + jax.nn.sigmoid(i) * jnp.tanh(g)
            return (jax.nn.sigmoid(o) * jnp.tanh(c), c), c @ w[1]
        start = jnp.zeros((xs.shape[1], d))
        _, ys = jax.lax.scan(cell, (start, start), xs)
        return jnp.mean((ys - xs) ** 2)
    return descend(loss), weights((2 * d, 4 * d), (d, d)), [jnp.ones((length, 32, d))]


def vit_dropout(d=192, patches=196):
    def loss(w, x, y, key):
        x = x @ w["patch"]
        for layer in w["layers"]:
            key, drop = jax.random.split(key)
            x = block(x, layer) * jax.random.bernoulli(drop, 0.9, x.shape) / 0.9
        return cross_entropy(x.mean(1) @ w["head"], y)
    patch, head = weights((768, d), (d, 100))
    w = {"patch": patch, "head": head, "layers": [block_weights(d) for _ in range(4)]}
    return descend(loss), w, [jnp.ones((16, patches, 768)), jnp.zeros(16, int), KEY]


# Each with True if the state is donated.
STEPS = {"mlp": (mlp, False), "gpt2": (gpt2, False), "gpt2_donated": (gpt2, True), "scanned": (scanned, False),
         "scanned_remat": (scanned_remat, False), "resnet": (resnet, False), "unet": (unet, False), "moe": (moe, False),
         "rnn": (rnn, True), "vit_dropout": (vit_dropout, True)}


def dump(name, out):
    """Compiles a step, writes its text, and returns XLA's figures."""
    make, is_donated = STEPS[name]
    step, state, batch = make()
    compiled = jax.jit(step, donate_argnums=0 if is_donated else ()).lower(state, *batch).compile()
    text = compiled.as_text().replace(__file__, "dump_jax.py")
    (out / f"{name}.hlo.txt").write_text(text, encoding="utf-8")
    m = compiled.memory_analysis()
    return {"arguments": m.argument_size_in_bytes, "outputs": m.output_size_in_bytes, "alias": m.alias_size_in_bytes,
            "temp": m.temp_size_in_bytes}


def solve(program, file, budgets, solver):
    run = subprocess.run([program, str(file), "--budget", budgets, "--solver", solver, "--work", "300000", "--json"],
                         capture_output=True, text=True, check=False)
    if run.returncode not in (0, 1):
        sys.exit(run.stderr)
    return [json.loads(line) for line in run.stdout.splitlines()]


def row(program, name, file, xla):
    def mb(size):
        return f"{size / 1e6:.1f}"
    kept = xla["arguments"] - xla["alias"]
    total = kept + xla["outputs"] + xla["temp"]
    # A budget of all of the listed order's peak is that peak.
    peak, *tight = solve(program, file, "1.0,80%,60%", "auto")
    ours = peak["budget_bytes"] + kept
    cells = [name, *(mb(xla[k]) for k in ("arguments", "outputs", "alias", "temp")), mb(total), mb(ours),
             f"{100 * ours / total - 100:+.1f}"]
    cells += ["–" if t["overhead"] is None else f"{max(0, 100 * t['overhead']):.1f}" for t in tight]
    return "| " + " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path, help="the folder for the dumps")
    parser.add_argument("--program", help="remat-plan, to compare with")
    parser.add_argument("--only", default=",".join(STEPS), help="some of the steps: NAME[,NAME...]")
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    known = args.out / "memory.json"
    memory = json.loads(known.read_text()) if known.exists() else {}
    for name in args.only.split(","):
        if name not in STEPS:
            sys.exit(f"--only {name}: expected one of {', '.join(STEPS)}")
        if name not in memory or not (args.out / f"{name}.hlo.txt").exists():
            memory[name] = dump(name, args.out)
            known.write_text(json.dumps(memory, indent=1) + "\n")
            print(f"{name}: {memory[name]}", file=sys.stderr)
    if args.program:
        print("| step | arguments | outputs | alias | temp | XLA | ours | differs | −20 % | −40 % |")
        print("|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|")
        for name in args.only.split(","):
            print(row(args.program, name, args.out / f"{name}.hlo.txt", memory[name]))


if __name__ == "__main__":
    main()
