#include "record/step_loops.h"

#include <algorithm>

namespace millrace::record {
namespace {

bool has(std::string_view text, std::string_view part) { return text.find(part) != std::string_view::npos; }

/// Optimizers of PyTorch and of optax; also those that others derive from PyTorch's, whose step() it calls.
bool is_optimizer(const StackFrame& frame) {
    const std::string_view file = frame.file;
    if (frame.native || frame.function == "zero_grad" || has(file, "lr_scheduler") || has(file, "swa_utils")) return false;
    return is_in(file, "torch/optim/") || is_in(file, "torch/distributed/optim/") || is_in(file, "optax/");
}

/// What an optimizer's own code leads to on the way to a launch.
bool serves_optimizer(const StackFrame& frame) {
    const std::string_view file = frame.file;
    if (is_in(file, "torch/nn/") || (is_in(file, "torch/autograd/") && !has(file, "grad_mode"))) return false;
    return frame.native || is_torch(file) || has(file, "torchinductor") || is_in(file, "triton/") || is_in(file, "optax/") ||
           is_in(file, "jax/") || has(file, "contextlib");
}

/// The outermost frame of an optimizer that makes this call by itself; the number of frames where none does.
std::size_t optimizer_frame(std::span<const StackFrame> frames) {
    std::size_t outermost = frames.size();
    while (outermost > 0 && !is_optimizer(frames[outermost - 1])) --outermost;
    if (outermost == 0) return frames.size();
    std::string_view own;  // where the program derives an optimizer
    for (std::size_t at = outermost - 1; at-- > 0;) {
        const StackFrame& frame = frames[at];
        if (own.empty() && frame.function == "step") own = frame.file;
        if (frame.file != own && !serves_optimizer(frame)) return frames.size();
    }
    return outermost - 1;
}

/// The probe writes the innermost frames alone; whole stacks end where a thread begins.
bool is_cut_off(std::span<const StackFrame> frames) {
    constexpr std::size_t kFewest = 48;  ///< that were cut off by any version
    const std::string_view last = frames.back().function;
    return frames.size() >= kFewest && last != "<module>" && last != "_run_module_as_main" && last != "_bootstrap";
}

std::uint64_t hash_of(const StackFrame& frame, LineRange lines) {
    const std::hash<std::string_view> hash;
    std::uint64_t number = hash(frame.file) * 31 + hash(frame.function);
    for (const std::uint32_t line : {lines.first, lines.last}) number = (number ^ line) * 0x9e3779b97f4a7c15u ^ number >> 29;
    return number;
}

constexpr std::string_view kInstalled[] = {"site-packages/", "dist-packages/"};
constexpr std::string_view kTorch[] = {"torch/nn/",        "torch/optim/",  "torch/utils/",    "torch/autograd/",
                                       "torch/cuda/",      "torch/amp/",    "torch/_",         "torch/fx/",
                                       "torch/functional", "torch/storage", "torch/backends/", "torch/distributed/"};

}  // namespace

bool LoopTable::add(const FunctionLoops& loops) {
    constexpr std::size_t kMostFunctions = 1u << 16;
    if (loops_.size() >= kMostFunctions) return false;
    const auto [entry, fresh] = loops_.try_emplace({loops.file, loops.function});
    std::vector<LineRange>& known = entry->second;
    const std::size_t before = known.size();
    // Functions of one name in a file: a method of several classes.
    for (const LineRange range : loops.loops)
        if (std::ranges::find(known, range) == known.end()) known.push_back(range);
    std::ranges::sort(known, [](LineRange a, LineRange b) { return a.first != b.first ? a.first < b.first : a.last > b.last; });
    return fresh || known.size() != before;
}

const std::vector<LineRange>* LoopTable::of(std::string_view file, std::string_view function) const {
    const auto found = loops_.find({std::string(file), std::string(function)});
    return found == loops_.end() ? nullptr : &found->second;
}

std::optional<StepPlace> place_of(std::span<const StackFrame> frames, const LoopTable& loops) {
    if (frames.empty() || frames.back().native || is_cut_off(frames)) return std::nullopt;
    StepPlace place;
    const std::size_t optimizer = optimizer_frame(frames);
    place.compiled = is_in(frames.front().file, "jax/") || is_in(frames.front().file, "tensorflow/");
    for (std::size_t at = frames.size(); at-- > 0;) {
        if (at == optimizer) place.outside = place.turns.size();
        const StackFrame& frame = frames[at];
        if (frame.native) continue;
        const auto number = static_cast<std::uint32_t>(at);
        const std::vector<LineRange>* const known = loops.of(frame.file, frame.function);
        if (known == nullptr) place.turns.push_back({hash_of(frame, {}), frame.line, number, true});
        for (std::size_t i = 0; known != nullptr && i < known->size(); ++i)
            if ((*known)[i].holds(frame.line)) place.turns.push_back({hash_of(frame, (*known)[i]), frame.line, number, false});
    }
    return place;
}

bool is_in(std::string_view file, std::string_view package) {
    for (const std::string_view folder : kInstalled)
        if (const std::size_t at = file.rfind(folder); at != std::string_view::npos)
            return file.substr(at + folder.size()).starts_with(package);
    for (std::size_t at = file.find(package); at != std::string_view::npos; at = file.find(package, at + 1))
        if (at == 0 || file[at - 1] == '/') return true;
    return false;
}

bool is_torch(std::string_view file) {
    return std::ranges::any_of(kTorch, [file](std::string_view part) { return is_in(file, part); });
}

}  // namespace millrace::record
