#pragma once
// Gives calls their stacks where a trace has functions as stretches of time: a call's stack is what it lies in on its thread.

#include <cstdint>
#include <optional>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "diagnose/reading/name_table.h"
#include "diagnose/timeline/timeline.h"

namespace millrace::diagnose {

/// "train.py(23): step_once" is a place in a file; "<built-in method item of Tensor object>" and "aten::item" are native.
Frame frame_of(std::string_view text);
/// The other way round.
std::string text_of(const Frame& frame);
/// "a.py(1): f;b.py(2): g", innermost first; at most kDeepestStack frames.
Stack stack_of(std::string_view text);
constexpr std::size_t kDeepestStack = 64;
constexpr std::size_t kMostFrames = 500'000;  ///< in all stacks of a timeline: some 100 MB

class StackBuilder {
public:
    enum class SpanKind : std::uint32_t {
        kNative = 0,            ///< an operator of the framework
        kPython = 1u << 30,     ///< a function of the interpreter
        kWholeStack = 1u << 31  ///< `text` is a stack as stack_of takes it
    };

    void add(Time begin, Time end, std::uint32_t process, std::uint32_t thread, std::string_view text, SpanKind kind);
    [[nodiscard]] std::size_t spans() const { return spans_.size(); }

    /// Fills `calls[i].stack` (where it is kNoStack) and its notes, and `stacks`. Calls of a thread without any Python of its
    /// own, made while another thread of the process waits for autograd, get that thread's frames below their own: backward runs
    /// on threads of its own. False when not all stacks had room.
    bool build(std::vector<Call>& calls, std::vector<Stack>& stacks);

private:
    struct Span {
        Time begin, end;
        std::uint32_t row, what;  ///< what: number of the text and SpanKind
    };
    struct Node {
        std::uint32_t parent, text;
    };
    struct Open {
        Time end;
        std::uint32_t what;
        std::optional<std::uint32_t> node;
    };
    class Walk;

    std::uint32_t row_of(std::uint32_t process, std::uint32_t thread);
    std::uint32_t child(std::uint32_t parent, std::uint32_t text);
    std::uint32_t whole(std::uint32_t text);
    std::uint32_t node_of(std::vector<Open>& open, std::uint32_t base);
    void sort_spans();
    void find_backward(const std::vector<Call>& calls, const std::vector<std::uint32_t>& order);
    bool leads_to_backward(std::uint32_t node) const;
    bool write_stacks(std::vector<Call>& calls, const std::vector<std::uint32_t>& node_of_call, std::vector<Stack>& stacks) const;

    NameTable texts_;
    std::vector<Span> spans_;
    std::unordered_map<std::uint64_t, std::uint32_t> rows_;
    std::vector<std::uint64_t> row_keys_;
    std::vector<std::size_t> first_span_;    ///< by row, and one more
    std::vector<std::size_t> python_spans_;  ///< by row
    std::vector<Node> nodes_{{0, 0}};
    std::unordered_map<std::uint64_t, std::uint32_t> children_;
    std::unordered_map<std::uint32_t, std::uint32_t> wholes_;
    std::unordered_map<std::uint32_t, std::uint32_t> base_of_call_;
};

}  // namespace millrace::diagnose
