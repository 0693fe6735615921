#include "diagnose/program/frame_counts.h"

namespace millrace::diagnose {
namespace {

template <typename Key>
const Under* innermost(const std::map<Key, Under>& entries, double least) {
    const Under* best = nullptr;
    for (const auto& [key, under] : entries)
        if (static_cast<double>(under.count) >= least && (!best || under.depth > best->depth)) best = &under;
    return best;
}

}  // namespace

void Under::add(const Stack& stack, std::size_t at, std::size_t times) {
    if (last == &stack) return;
    if (count == 0) spot = {&stack, at}, depth = stack.size() - at;
    count += times;
    last = &stack;
}

void FrameCounts::add(const Stack& stack, std::size_t at, std::size_t times) {
    lines[line_of(stack[at])].add(stack, at, times);
    functions[function_of(stack[at])].add(stack, at, times);
}

const Under* FrameCounts::line(double least) const { return innermost(lines, least); }

const Under* FrameCounts::function(double least) const { return innermost(functions, least); }

const Under* FrameCounts::busiest(const Under& function) const {
    const Under* most = nullptr;
    for (const auto& [line, under] : lines)
        if (function_of(under.spot.frame()) == function_of(function.spot.frame()) && (!most || under.count > most->count))
            most = &under;
    return most;
}

}  // namespace millrace::diagnose
