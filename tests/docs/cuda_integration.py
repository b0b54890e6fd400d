# SPDX-License-Identifier: BSL-1.0
"""The blocks of docs/cuda-integration.md on plain CUDA are cut from files that are compiled, which check every code of CUDA."""
import pathlib
import re
import sys
import textwrap

root = pathlib.Path(__file__).resolve().parents[2]
page = (root / "docs" / "cuda-integration.md").read_text(encoding="utf-8")
test = (root / "tests" / "docs" / "cuda_integration_test.cu").read_text(encoding="utf-8")
minimal = (root / "examples" / "cuda_minimal.cu").read_text(encoding="utf-8")
blocks = [textwrap.dedent(b) for b in re.findall(r"^ *// \[page\]\n(.*?)^ *// \[end\]\n", test, re.M | re.S)]
wanted = [minimal.split("\n", 1)[1], *blocks]  # without the licence's line
plain = page.split("\n## libtorch\n")[0]
found = re.findall(r"```cpp\n(.*?)```\n", plain, re.S)
if found != wanted:
    for block in found:
        if block not in wanted:
            print("this block of the page is in no compiled file:\n" + textwrap.indent(block, "    "))
    for block in wanted:
        if block not in found:
            print("this block is not on the page:\n" + textwrap.indent(block, "    "))
    sys.exit("docs/cuda-integration.md and the files that it is cut from differ")
expected = (root / "examples" / "cuda_minimal.expected").read_text(encoding="utf-8")
if f"```\n{expected}```\n" not in page:
    sys.exit("the output on the page is not examples/cuda_minimal.expected")
# A call of the runtime whose code is dropped would let a mistake pass in what readers copy.
for folder in ("examples", "tests/docs", "bench"):
    for file in sorted(p for p in (root / folder).rglob("*.cu*") if p.suffix in (".cu", ".cuh")):
        for number, line in enumerate(file.read_text(encoding="utf-8").splitlines(), 1):
            if re.match(r" *cuda[A-Z]\w*\(.*\);", line) and line.count("(") == line.count(")"):
                sys.exit(f"{file.relative_to(root)}:{number}: the code of this call is ignored: {line.strip()}")
print(len(found), "blocks")
