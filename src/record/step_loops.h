#pragma once
// Where a call stands among the program's loops, by its stack, and whether an optimizer makes it.

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "record/trace_file.h"

namespace millrace::record {

/// Loops of functions, by lines.
class LoopTable {
public:
    /// False when it has them already.
    bool add(const FunctionLoops& loops);
    [[nodiscard]] const std::vector<LineRange>* of(std::string_view file, std::string_view function) const;
    [[nodiscard]] std::size_t size() const { return loops_.size(); }

private:
    std::map<std::pair<std::string, std::string>, std::vector<LineRange>> loops_;
};

/// A loop that a call is in, and the line of it that made the call.
struct Turn {
    std::uint64_t loop = 0;  ///< hash of file, function and lines
    std::uint32_t line = 0;
    std::uint32_t frame = 0;  ///< of the stack; loops of one function have the same
    bool assumed = false;     ///< a function of which no loops are known: whether it is one is not known either
};

struct StepPlace {
    std::vector<Turn> turns;  ///< outermost first
    /// Of calls that an optimizer makes: how many of the turns are outside of its own code; kNoUpdate for others. What an
    /// optimizer has others compute (Lightning's closures) is no update.
    std::size_t outside = kNoUpdate;
    static constexpr std::size_t kNoUpdate = ~std::size_t{0};
    bool compiled = false;  ///< one call that may launch a whole step: of JAX or another compiler
};

struct StackFrame {
    std::string_view file, function;
    std::uint32_t line = 0;
    bool native = false;
};

/// `frames` innermost first. Absent for stacks that were cut off, as their loops are not all known, and for those without code of
/// the interpreter.
std::optional<StepPlace> place_of(std::span<const StackFrame> frames, const LoopTable& loops);

/// Whether a Python file lies in an installed package, such as "torch/optim/", or below any folder of that name where nothing
/// says that it is installed: traces shorten paths, developers install from sources.
bool is_in(std::string_view file, std::string_view package);
bool is_torch(std::string_view file);

}  // namespace millrace::record
