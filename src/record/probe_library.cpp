#include "record/probe_library.h"

#include <elf.h>
#include <fmt/format.h>

#include "record/elf_symbols.h"

namespace millrace::record {
namespace {

namespace fs = std::filesystem;

constexpr const char* kProbeName = "libmillrace-probe.so";
constexpr const char* kEntry = "InitializeInjection";  ///< what CUDA calls
#if defined(__aarch64__)
constexpr std::uint16_t kMachine = EM_AARCH64;
#else
constexpr std::uint16_t kMachine = EM_X86_64;
#endif

std::string flaw_of(const io::Path& path) {
    std::error_code failed;
    if (!fs::exists(path, failed)) return "there is no such file";
    if (!fs::is_regular_file(path, failed)) return "is not a file";
    const auto symbols = find_elf_symbols(path, {kEntry});
    if (!symbols.ok() || symbols->type != ET_DYN) return "is not a shared library";
    if (symbols->machine != kMachine) return "is a library for another architecture than this machine's";
    if (!symbols->values.contains(kEntry)) return fmt::format("is a library without the entry point {}", kEntry);
    return {};
}

}  // namespace

base::Result<std::string> check_probe_library(const io::Path& path) {
    std::error_code failed;
    const io::Path place = fs::absolute(path, failed);
    if (const std::string flaw = flaw_of(place); !flaw.empty())
        return base::Error{fmt::format("{}; the probe is the {} that was built with this program", flaw, kProbeName),
                           path.string()};
    return place.string();
}

base::Result<std::string> find_probe_library(const io::Path& folder) {
    std::error_code failed;
    const io::Path above = folder.parent_path();
    for (const io::Path& place :
         {folder / kProbeName, above / "lib" / kProbeName, above / "lib/millrace" / kProbeName, above / kProbeName}) {
        if (!fs::is_regular_file(place, failed)) continue;
        auto checked = check_probe_library(place);
        if (checked.ok()) return checked;
        base::Error error = checked.error();
        error.exit_status = 3;
        return error;
    }
    return base::Error{fmt::format("the probe's library, {}, is neither beside this program nor in ../lib or ../lib/millrace; "
                                   "put it there, or name it with --probe FILE",
                                   kProbeName),
                       folder.string(), 3};
}

base::Result<std::string> find_probe_library() {
    std::error_code failed;
    return find_probe_library(fs::read_symlink("/proc/self/exe", failed).parent_path());
}

}  // namespace millrace::record
