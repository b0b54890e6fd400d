# SPDX-License-Identifier: BSL-1.0
"""Rewrites CUDA sources so that g++ compiles them and cuda_on_host.hpp runs them: cuda_on_host.py FROM TO"""
import pathlib
import re
import sys


def at_top_level(text):
    """The parts of `text` between the commas that are in no bracket."""
    parts, depth = [""], 0
    for c in text:
        depth += (c in "([{") - (c in ")]}")
        if c == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += c
    return [p.strip() for p in parts]


def end_of_call(text, begin):
    """The place of the bracket that closes the one at `begin`."""
    depth = 0
    for i in range(begin, len(text)):
        depth += (text[i] == "(") - (text[i] == ")")
        if depth == 0:
            return i
    raise ValueError("a bracket is not closed")


def rewrite(text):
    while launch := re.search(r"([\w:]+)(<[\w:, ]*>)?\s*<<<", text):
        configured = text.index(">>>", launch.end())
        grid, block, *rest = at_top_level(text[launch.end() : configured])
        stream = rest[1] if len(rest) > 1 else "nullptr"
        begin = text.index("(", configured)
        end = end_of_call(text, begin)
        name = launch[1] + (launch[2] or "")
        kernel = f"[](auto... arguments) {{ {name}(arguments...); }}"
        given = [text[begin + 1 : end]] if text[begin + 1 : end].strip() else []
        arguments = ", ".join([f"dim3({grid})", f"dim3({block})", stream, kernel, *given])
        text = text[: launch.start()] + f"cuda_on_host::launch({arguments})" + text[end + 1 :]
    text = re.sub(r"\b(threadIdx|blockIdx|blockDim|gridDim)\b", r"cuda_on_host::\1", text)
    # 48 KiB, as on a device that is not asked for more.
    return re.sub(r"extern __shared__ (__align__\(\d+\) )?(\w+) (\w+)\[\];", r"static \1\2 \3[12288];", text)


source, result = map(pathlib.Path, sys.argv[1:])
result.parent.mkdir(parents=True, exist_ok=True)
result.write_text(rewrite(source.read_text(encoding="utf-8")), encoding="utf-8")
