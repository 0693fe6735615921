#pragma once
// Where a test finds what it reads. Looked for beside the running program first, so that built tests can move to another machine.

#include <filesystem>

namespace millrace::testing {

/// The folder of the running test program.
inline std::filesystem::path program_folder() {
    std::error_code failed;
    return std::filesystem::read_symlink("/proc/self/exe", failed).parent_path();
}

/// The root of the repository: the folder above the program's, else the one it was built from.
inline std::filesystem::path source_root() {
    std::error_code failed;
    const std::filesystem::path above = program_folder().parent_path();
    return std::filesystem::exists(above / "tests/goldens", failed) ? above : std::filesystem::path(MILLRACE_SOURCE_ROOT);
}

}  // namespace millrace::testing
