#pragma once
// Whose line it is: frames of the user's own code among those of the interpreter, its library and installed packages, and which
// of them has most of some launches or samples under it.

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "diagnose/timeline/timeline.h"

namespace millrace::diagnose {

/// `parts`: separated by spaces. One that begins with a slash is a whole name, be it the first: traces have no folder before it.
bool contains_any(std::string_view text, std::string_view parts);
/// Of words separated by spaces.
bool is_one_of(std::string_view word, std::string_view words);
/// The standard library, installed packages, the framework, code without a file.
bool is_library(std::string_view file);
/// What turns the program into launches: advice is in its words.
enum class Framework : std::uint8_t { kCuda, kPyTorch, kLightning, kTrainer, kJax, kTensorFlow };
constexpr std::size_t kFrameworks = 6;
/// Whose file it is, by whole names of folders: an environment or a user's folder may be called torch-2.
std::optional<Framework> framework_in(std::string_view file);
/// The framework's way to a launch (PyTorch's, JAX's, TensorFlow's own files), without its data loaders.
bool is_framework(std::string_view file);
/// JAX's and TensorFlow's code that fetches a value: who is asleep there waits for the device.
bool is_read(const Frame& frame);
/// A data loader's own code, or that of queues and pipes between processes.
bool is_loader(const Frame& frame);
/// PyTorch's pass backward: what is below launches what the pass forward asks for.
bool is_backward(const Frame& frame);
/// Code that writes: checkpoints, logs, pictures, progress.
bool is_output(const Frame& frame);

/// Code that writes checkpoints.
bool is_checkpoint(const Frame& frame);
/// Compilers of frameworks at work; not their code that runs what was compiled.
bool is_compiler(const Frame& frame);

/// Position of the innermost frame of the user's own code; of native programs that of the first library which is no runtime's.
std::optional<std::size_t> user_frame(const Stack& stack);

constexpr std::uint32_t kNoPlace = 0;
/// The place, name or thread with most; 0, which stands for none, counts for nothing.
template <class Amount>
std::uint32_t key_with_most(const std::map<std::uint32_t, Amount>& amounts) {
    std::uint32_t best = 0;
    Amount most = 0;
    for (const auto& [key, amount] : amounts)
        if (key != 0 && amount > most) most = amount, best = key;
    return best;
}

/// Numbers for lines of user code, so that calls can be grouped by them.
class Places {
public:
    explicit Places(const Timeline& timeline);

    std::uint32_t of_stack(std::uint32_t stack) const { return stack < of_stack_.size() ? of_stack_[stack] : kNoPlace; }
    const Frame& frame(std::uint32_t place) const { return frames_[place]; }
    std::string name(std::uint32_t place) const;  ///< "train.py:12"
    /// Places of one function share it, with those of lambdas and comprehensions that it calls.
    std::uint32_t function(std::uint32_t place) const { return functions_[place]; }
    /// A stack that has it innermost among the user's.
    std::uint32_t stack_of(std::uint32_t place) const { return stacks_[place]; }
    const Stack& stack(std::uint32_t place) const { return timeline_.stacks[stacks_[place]]; }

private:
    const Timeline& timeline_;
    std::vector<Frame> frames_;  ///< [0] is nothing
    std::vector<std::uint32_t> of_stack_, functions_, stacks_;
};

/// A frame of the user's own code and the stack it stands in.
struct Spot {
    const Stack* stack = nullptr;
    std::size_t at = 0;

    const Frame& frame() const { return (*stack)[at]; }
};

using Function = std::tuple<std::string_view, std::string_view>;
using Line = std::tuple<std::string_view, std::string_view, int>;
inline Function function_of(const Frame& frame) { return {frame.file, frame.function}; }
inline Line line_of(const Frame& frame) { return {frame.file, frame.function, frame.line}; }
inline bool is_users(const Frame& frame) { return !frame.native && !is_library(frame.file); }

/// How many fall under a frame, and how far in it lies where it was first seen.
struct Under {
    std::size_t count = 0, depth = 0;
    Spot spot;
    const Stack* last = nullptr;  ///< that was counted: functions that call themselves stand in it twice

    void add(const Stack& stack, std::size_t at, std::size_t times);
};

/// Frames of stacks, each of which is added once with how often it was seen.
struct FrameCounts {
    std::map<Line, Under> lines;
    std::map<Function, Under> functions;

    void add(const Stack& stack, std::size_t at, std::size_t times);
    /// The innermost line with at least so many; null: none has.
    const Under* line(double least) const;
    const Under* function(double least) const;
    /// The line of a function that has most.
    const Under* busiest(const Under& function) const;
};

}  // namespace millrace::diagnose
