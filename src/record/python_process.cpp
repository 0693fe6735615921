#include "record/python_process.h"

#include <sys/uio.h>

#include <algorithm>
#include <charconv>
#include <fstream>

#include "record/elf_symbols.h"
#include "record/process_numbers.h"
#include "record/python_loops.h"
#include "sense/proc_file.h"

namespace millrace::record {
namespace {

constexpr std::uint32_t kMostPythonThreads = 256, kMostFrames = 96;
constexpr std::uint64_t kForgetAfter = 4096;  ///< stacks asked for
constexpr std::size_t kMostKnown = 4096, kMostPythonMappings = 1u << 17;

/// Memory of another process.
struct RemoteMemory {
    pid_t pid;
    bool read(std::uint64_t address, void* to, std::size_t size) const {
        const iovec local{to, size};
        const iovec remote{reinterpret_cast<void*>(address), size};  // NOLINT: an address over there
        return ::process_vm_readv(pid, &local, 1, &remote, 1, 0) == static_cast<ssize_t>(size);
    }
};

struct Image {
    std::string path;
    std::uint64_t start = 0;  ///< where its first byte lies
};

bool names_python(std::string_view path) {
    const std::string_view name = path.substr(path.rfind('/') + 1);
    return name.starts_with("python") || name.starts_with("libpython");
}

/// Mapped files that may be the interpreter, by /proc/PID/maps.
std::vector<Image> images_of(const std::string& folder) {
    std::vector<Image> images;
    std::ifstream maps(folder + "/maps");  // of programs with a GPU it is long
    std::string text;
    for (std::size_t number = 0; number < kMostPythonMappings && std::getline(maps, text); ++number) {
        std::string_view line = text;
        const std::string_view range = sense::next_word(line);
        sense::next_word(line);
        const std::string_view offset = sense::next_word(line);
        sense::next_word(line);
        sense::next_word(line);
        const std::size_t slash = line.find('/');
        if (slash == std::string_view::npos || offset.find_first_not_of('0') != std::string_view::npos) continue;
        const std::string path(line.substr(slash));
        if (std::ranges::find(images, path, &Image::path) != images.end()) continue;
        std::uint64_t start = 0;
        std::from_chars(range.data(), range.data() + range.size(), start, 16);
        images.push_back({path, start});
    }
    std::error_code failed;
    const std::string program = std::filesystem::read_symlink(folder + "/exe", failed).string();
    std::erase_if(images, [&](const Image& image) { return image.path != program && !names_python(image.path); });
    return images;
}

/// PY_VERSION_HEX as far as a name such as libpython3.10.so.1.0 tells; 0 when it does not.
std::uint32_t version_in(const std::string& path) {
    const std::size_t at = path.rfind("python3.");
    if (at == std::string::npos) return 0;
    std::uint32_t minor = 0;
    std::from_chars(path.data() + at + 8, path.data() + path.size(), minor);
    return minor > 0 && minor < 256 ? 3u << 24 | minor << 16 : 0;
}

std::uint64_t hash_of(std::span<const PythonFrame> frames) {
    std::uint64_t hash = frames.size();
    for (const PythonFrame& frame : frames)
        for (const std::uint64_t word : {frame.code, frame.instruction}) hash = (hash ^ word) * 0x9e3779b97f4a7c15u ^ hash >> 29;
    return hash;
}

}  // namespace

std::optional<PythonProcess> PythonProcess::attach(pid_t pid, const std::string& proc) {
    const std::string folder = proc + "/" + std::to_string(pid);
    RemoteMemory memory{pid};
    for (const Image& image : images_of(folder)) {
        // Through its own root: it may live in a container.
        const auto symbols = find_elf_symbols(folder + "/root" + image.path, {"_PyRuntime", "Py_Version", "PyCode_Type"});
        if (!symbols.ok() || !symbols->values.contains("_PyRuntime")) continue;
        const auto address = [&](const char* name) {
            const auto value = symbols->values.find(name);
            return value == symbols->values.end() ? 0 : value->second - symbols->first_load + image.start;
        };
        std::uint32_t version = 0;
        if (const std::uint64_t at = address("Py_Version"); at == 0 || !memory.read(at, &version, sizeof version))
            version = version_in(image.path);
        const PythonLayout layout = python_layout(memory, address("_PyRuntime"), version);
        if (layout.minor != 0)
            return PythonProcess(pid, own_number_of(static_cast<std::uint32_t>(pid), proc), address("_PyRuntime"),
                                 address("PyCode_Type"), layout);
    }
    return std::nullopt;
}

std::vector<PythonThread> PythonProcess::threads() {
    RemoteMemory memory{pid_};
    std::vector<PythonThread> threads(kMostPythonThreads);
    threads.resize(python_threads(memory, layout_, runtime_, own_number_, threads.data(), kMostPythonThreads));
    std::erase_if(threads, [](const PythonThread& thread) { return thread.number == 0; });
    return threads;
}

bool PythonProcess::is_collecting(std::uint64_t state) {
    RemoteMemory memory{pid_};
    const std::uint64_t interpreter = read_word(memory, state + layout_.thread_interpreter);
    if (interpreter != interpreter_) {
        interpreter_ = interpreter;
        collecting_ = interpreter_ != 0 ? find_collecting(memory, layout_, interpreter_) : 0;
    }
    std::int32_t collecting = 0;
    return collecting_ != 0 && memory.read(collecting_, &collecting, sizeof collecting) && collecting == 1;
}

SharedStack PythonProcess::stack(std::uint64_t state, std::vector<FunctionLoops>& loops) {
    RemoteMemory memory{pid_};
    const bool collecting = is_collecting(state);
    std::vector<PythonFrame> frames(kMostFrames);
    frames.resize(python_stack(memory, layout_, state, frames.data(), kMostFrames, code_type_));
    if (frames.empty()) return nullptr;
    if (++asked_ >= kForgetAfter || known_.size() >= kMostKnown) {
        known_.clear();
        looked_into_.clear();
        asked_ = 0;
    }
    Known& known = known_[hash_of(frames) + (collecting ? 1 : 0)];
    if (known.stack && known.frames == frames && known.collecting == collecting) return known.stack;
    auto places = std::make_shared<std::vector<TraceFrame>>();
    for (const PythonFrame& frame : frames) {
        PythonPlace place;
        if (!python_place(memory, layout_, frame, place)) break;
        places->push_back({place.file, place.function, place.line, false});
        if (knows_loops(layout_.minor) && looked_into_.insert(frame.code).second)
            loops.push_back({place.file, place.function, python_loops(memory, layout_, frame.code)});
    }
    if (places->empty()) return nullptr;
    if (collecting) places->insert(places->begin(), {std::string(kInterpreterFile), std::string(kCollectingFunction), 0, true});
    known = {std::move(frames), collecting, std::move(places)};
    return known.stack;
}

}  // namespace millrace::record
