# SPDX-License-Identifier: BSL-1.0
"""Builds and runs an example of remat with the package: conan create runs this."""

import os

from conan import ConanFile
from conan.tools.build import can_run
from conan.tools.cmake import CMake, CMakeToolchain, cmake_layout


class TestPackage(ConanFile):
    settings = "os", "arch", "compiler", "build_type"
    generators = "CMakeDeps"

    def layout(self):
        cmake_layout(self)

    def requirements(self):
        self.requires(self.tested_reference_str)

    def generate(self):
        toolchain = CMakeToolchain(self)
        toolchain.user_presets_path = False  # no file beside this one
        toolchain.cache_variables["WITH_JSON"] = bool(self.dependencies["remat"].options.json)
        toolchain.generate()

    def build(self):
        cmake = CMake(self)
        cmake.configure()
        cmake.build()

    def test(self):
        if can_run(self):
            expected = os.path.join(self.recipe_folder, "..", "..", "..", "..", "examples", "compiler_explorer.expected")
            self.run(f'"{os.path.join(self.cpp.build.bindir, "test_package")}" | diff - "{expected}"', env="conanrun")
            if self.dependencies["remat"].options.json:
                self.run(os.path.join(self.cpp.build.bindir, "test_json"), env="conanrun")
