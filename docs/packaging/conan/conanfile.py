# SPDX-License-Identifier: BSL-1.0
"""remat for Conan 2, from this checkout: conan create docs/packaging/conan"""

import os
import re

from conan import ConanFile
from conan.tools.build import check_min_cppstd
from conan.tools.cmake import CMake, CMakeDeps, CMakeToolchain
from conan.tools.files import copy, load

# An option, and what it requires. CMake's name of the package is what the build is told not to find without the option.
PACKAGES = {
    "json": ("nlohmann_json/[>=3.11 <4]", "nlohmann_json"),
    "boost": ("boost/[>=1.74 <2]", "Boost"),
    "eigen": ("eigen/[>=3.4 <4]", "Eigen3"),
}


class Remat(ConanFile):
    name = "remat"
    license = "BSL-1.0"
    description = "Plans which tensors of a training step to keep in memory and which to compute again"
    topics = ("rematerialization", "activation-checkpointing", "scheduling", "header-only")
    package_type = "header-library"
    settings = "os", "arch", "compiler", "build_type"
    options = {option: [True, False] for option in PACKAGES}
    default_options = {option: False for option in PACKAGES}
    checkout = os.path.join("..", "..", "..")

    def set_version(self):
        header = load(self, os.path.join(self.recipe_folder, self.checkout, "include", "remat", "version.hpp"))
        self.version = ".".join(re.findall(r"#define REMAT_VERSION_\w+ (\d+)", header))

    def export_sources(self):
        root = os.path.join(self.recipe_folder, self.checkout)
        for pattern in ("CMakeLists.txt", "LICENSE", ".cmake/*", "include/*"):
            copy(self, pattern, root, self.export_sources_folder)

    def requirements(self):
        for option, (reference, _) in PACKAGES.items():
            if self.options.get_safe(option):
                self.requires(reference, transitive_headers=True)

    def package_id(self):
        del self.info.settings.compiler, self.info.settings.build_type, self.info.settings.arch

    def validate(self):
        check_min_cppstd(self, 20)

    def generate(self):
        toolchain = CMakeToolchain(self)
        for option in ("REMAT_BUILD_TESTS", "REMAT_BUILD_EXAMPLES", "REMAT_CUDA_PROGRAMS"):
            toolchain.cache_variables[option] = False
        # What the machine happens to have must not change the package.
        missing = [cmake for option, (_, cmake) in PACKAGES.items() if not self.options.get_safe(option)]
        for cmake in [*missing, "PkgConfig", "CUDAToolkit", "MPI"]:
            toolchain.cache_variables[f"CMAKE_DISABLE_FIND_PACKAGE_{cmake}"] = True
        toolchain.cache_variables["REMAT_CHART_JS"] = ""
        toolchain.generate()
        CMakeDeps(self).generate()

    def build(self):
        CMake(self).configure()

    def package(self):
        CMake(self).install()
        copy(self, "LICENSE", self.source_folder, os.path.join(self.package_folder, "licenses"))

    def package_info(self):
        # The library's own package files define remat::remat, remat::json, … and remat::compiled.
        self.cpp_info.set_property("cmake_find_mode", "none")
        self.cpp_info.builddirs = [os.path.join("share", "remat")]
        self.cpp_info.set_property("pkg_config_name", "remat")
        self.cpp_info.bindirs = []
        self.cpp_info.libdirs = []
        if self.settings.os in ("Linux", "FreeBSD"):
            self.cpp_info.system_libs = ["pthread"]
