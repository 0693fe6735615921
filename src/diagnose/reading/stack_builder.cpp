#include "diagnose/reading/stack_builder.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <numeric>
#include <utility>

namespace millrace::diagnose {
namespace {

constexpr std::uint32_t kTextMask = (1u << 30) - 1;
constexpr std::string_view kNativeMark = "<native> ";

/// Addresses make texts of one function different in every call: "<built-in method item of Tensor object at 0x7f21>".
std::string without_addresses(std::string_view text) {
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
        const std::size_t found = std::min(text.find(" at 0x", at), text.size());
        out += text.substr(at, found - at);
        at = found;
        if (at == text.size()) break;
        at += 6;
        while (at < text.size() && std::isxdigit(static_cast<unsigned char>(text[at])) != 0) ++at;
    }
    return out;
}

bool has(std::uint32_t what, StackBuilder::SpanKind kind) { return (what & static_cast<std::uint32_t>(kind)) != 0; }

}  // namespace

Frame frame_of(std::string_view text) {
    Frame frame;
    if (text.starts_with(kNativeMark)) {
        frame.native = true;
        text.remove_prefix(kNativeMark.size());
    }
    for (std::size_t close = text.rfind("): "); close != std::string_view::npos && close > 0;
         close = text.rfind("): ", close - 1)) {
        const std::size_t open = text.rfind('(', close);
        if (open == std::string_view::npos) break;
        int line = 0;
        const auto [end, error] = std::from_chars(text.data() + open + 1, text.data() + close, line);
        if (error != std::errc() || end != text.data() + close || open + 1 == close || line < 0) continue;
        frame.file = text.substr(0, open);
        frame.line = line;
        frame.function = text.substr(close + 3);
        return frame;
    }
    frame.native = true;
    frame.function = text;
    return frame;
}

std::string text_of(const Frame& frame) {
    if (frame.file.empty() && frame.line == 0 && frame.native && frame_of(frame.function) == frame) return frame.function;
    return fmt::format("{}{}({}): {}", frame.native ? kNativeMark : "", frame.file, frame.line, frame.function);
}

Stack stack_of(std::string_view text) {
    Stack stack;
    while (!text.empty() && stack.size() < kDeepestStack) {
        const std::size_t end = std::min(text.find(';'), text.size());
        if (end > 0) stack.push_back(frame_of(text.substr(0, end)));
        text.remove_prefix(std::min(end + 1, text.size()));
    }
    return stack;
}

std::uint32_t StackBuilder::row_of(std::uint32_t process, std::uint32_t thread) {
    const std::uint64_t key = std::uint64_t{process} << 32 | thread;
    const auto [entry, fresh] = rows_.emplace(key, static_cast<std::uint32_t>(row_keys_.size()));
    if (fresh) row_keys_.push_back(key);
    return entry->second;
}

void StackBuilder::add(Time begin, Time end, std::uint32_t process, std::uint32_t thread, std::string_view text, SpanKind kind) {
    const bool address = text.find(" at 0x") != std::string_view::npos;
    const std::uint32_t number = address ? texts_.number(without_addresses(text)) : texts_.number(text);
    spans_.push_back({begin, end, row_of(process, thread), (number & kTextMask) | static_cast<std::uint32_t>(kind)});
}

std::uint32_t StackBuilder::child(std::uint32_t parent, std::uint32_t text) {
    const auto [entry, fresh] = children_.emplace(std::uint64_t{parent} << 32 | text, static_cast<std::uint32_t>(nodes_.size()));
    if (fresh) nodes_.push_back({parent, text});
    return entry->second;
}

std::uint32_t StackBuilder::whole(std::uint32_t text) {
    const auto [entry, fresh] = wholes_.emplace(text, 0);
    if (fresh) {
        Stack stack = stack_of(texts_.text(text));
        std::uint32_t node = 0;
        for (auto frame = stack.rbegin(); frame != stack.rend(); ++frame) node = child(node, texts_.number(text_of(*frame)));
        entry->second = node;
    }
    return entry->second;
}

/// The node of what is open now. Each entry remembers its own, so that a call inside costs only what was opened since the last.
std::uint32_t StackBuilder::node_of(std::vector<Open>& open, std::uint32_t base) {
    std::size_t known = open.size();
    if (base != 0)
        known -= std::min(known, kDeepestStack);
    else
        while (known > 0 && !open[known - 1].node) --known;
    std::uint32_t node = base == 0 && known > 0 ? *open[known - 1].node : base;
    for (std::size_t i = known; i < open.size(); ++i) {
        const std::uint32_t text = open[i].what & kTextMask;
        node = has(open[i].what, SpanKind::kWholeStack) ? whole(text) : child(node, text);
        // With a base that belongs to one call the node is that call's alone.
        if (base == 0) open[i].node = node;
    }
    return node;
}

/// Goes through the spans of a row along with moments that only grow.
class StackBuilder::Walk {
public:
    Walk(const std::vector<Span>& spans, std::size_t first, std::size_t end) : spans_(&spans), next_(first), end_(end) {}

    std::vector<Open>& open_at(Time moment) {
        for (; next_ < end_ && (*spans_)[next_].begin <= moment; ++next_) {
            const Span& span = (*spans_)[next_];
            close_until(span.begin);
            open_.push_back({span.end, span.what, std::nullopt});
            // An operator's whole stack was noted along with the operator.
            if (!has(span.what, SpanKind::kWholeStack)) ++noted_;
        }
        close_until(moment);
        return open_;
    }
    /// Spans that began since this was asked last.
    std::uint32_t take_noted() { return std::exchange(noted_, 0); }

private:
    void close_until(Time moment) {
        while (!open_.empty() && open_.back().end <= moment) open_.pop_back();
    }
    const std::vector<Span>* spans_;
    std::size_t next_, end_;
    std::uint32_t noted_ = 0;
    std::vector<Open> open_;
};

void StackBuilder::sort_spans() {
    std::ranges::sort(spans_, [](const Span& a, const Span& b) {
        if (a.row != b.row) return a.row < b.row;
        if (a.begin != b.begin) return a.begin < b.begin;
        return a.end > b.end;
    });
    first_span_.assign(row_keys_.size() + 1, spans_.size());
    python_spans_.assign(row_keys_.size(), 0);
    for (std::size_t i = spans_.size(); i-- > 0;) {
        first_span_[spans_[i].row] = i;
        if (spans_[i].what > kTextMask) ++python_spans_[spans_[i].row];
    }
    // Rows without spans begin where the next begins.
    for (std::size_t row = row_keys_.size(); row-- > 0;) first_span_[row] = std::min(first_span_[row], first_span_[row + 1]);
}

bool StackBuilder::leads_to_backward(std::uint32_t node) const {
    for (std::size_t depth = 0; node != 0 && depth < kDeepestStack; node = nodes_[node].parent, ++depth) {
        const std::string& text = texts_.text(nodes_[node].text);
        if (text.find("run_backward") != std::string::npos || text.ends_with("): backward")) return true;
    }
    return false;
}

/// Fills base_of_call_. `order` has the calls by row and begin.
void StackBuilder::find_backward(const std::vector<Call>& calls, const std::vector<std::uint32_t>& order) {
    std::unordered_map<std::uint32_t, std::uint32_t> main_row;  // by process: the one with most Python
    for (std::uint32_t row = 0; row < row_keys_.size(); ++row) {
        if (python_spans_[row] == 0) continue;
        const auto [entry, fresh] = main_row.emplace(static_cast<std::uint32_t>(row_keys_[row] >> 32), row);
        if (!fresh && python_spans_[row] > python_spans_[entry->second]) entry->second = row;
    }
    std::unordered_map<std::uint32_t, std::vector<std::uint32_t>> homeless;  // by main row
    for (const std::uint32_t call : order) {
        const auto own = rows_.find(std::uint64_t{calls[call].process} << 32 | calls[call].thread);
        const auto main = main_row.find(calls[call].process);
        if (main == main_row.end() || (own != rows_.end() && python_spans_[own->second] > 0)) continue;
        homeless[main->second].push_back(call);
    }
    for (auto& [row, members] : homeless) {
        std::ranges::sort(members, {}, [&](std::uint32_t call) { return calls[call].begin; });
        Walk walk(spans_, first_span_[row], first_span_[row + 1]);
        for (const std::uint32_t call : members) {
            const std::uint32_t node = node_of(walk.open_at(calls[call].begin), 0);
            if (leads_to_backward(node)) base_of_call_[call] = node;
        }
    }
}

bool StackBuilder::build(std::vector<Call>& calls, std::vector<Stack>& stacks) {
    sort_spans();
    std::vector<std::uint32_t> order(calls.size());
    std::iota(order.begin(), order.end(), 0u);
    std::erase_if(order, [&](std::uint32_t call) { return calls[call].stack != kNoStack; });
    const auto key = [&](std::uint32_t call) { return std::uint64_t{calls[call].process} << 32 | calls[call].thread; };
    std::ranges::sort(order, [&](std::uint32_t a, std::uint32_t b) {
        return std::pair(key(a), calls[a].begin) < std::pair(key(b), calls[b].begin);
    });
    find_backward(calls, order);

    std::vector<std::uint32_t> nodes(calls.size(), 0);
    for (std::size_t i = 0; i < order.size();) {
        const std::uint64_t row_key = key(order[i]);
        const auto row = rows_.find(row_key);
        const std::size_t first = row == rows_.end() ? 0 : first_span_[row->second];
        const std::size_t last = row == rows_.end() ? 0 : first_span_[row->second + 1];
        for (Walk walk(spans_, first, last); i < order.size() && key(order[i]) == row_key; ++i) {
            const auto base = base_of_call_.find(order[i]);
            nodes[order[i]] = node_of(walk.open_at(calls[order[i]].begin), base == base_of_call_.end() ? 0 : base->second);
            calls[order[i]].notes += walk.take_noted();
        }
    }
    return write_stacks(calls, nodes, stacks);
}

bool StackBuilder::write_stacks(std::vector<Call>& calls, const std::vector<std::uint32_t>& node_of_call,
                                std::vector<Stack>& stacks) const {
    if (stacks.empty()) stacks.emplace_back();
    std::unordered_map<std::uint32_t, std::uint32_t> stack_of_node;
    std::size_t frames = 0;
    bool all = true;
    for (std::size_t i = 0; i < calls.size(); ++i) {
        if (node_of_call[i] == 0) continue;
        const auto [entry, fresh] = stack_of_node.emplace(node_of_call[i], kNoStack);
        if (fresh && frames < kMostFrames) {
            Stack stack;
            for (std::uint32_t node = node_of_call[i]; node != 0 && stack.size() < kDeepestStack; node = nodes_[node].parent)
                stack.push_back(frame_of(texts_.text(nodes_[node].text)));
            frames += stack.size();
            entry->second = static_cast<std::uint32_t>(stacks.size());
            stacks.push_back(std::move(stack));
        }
        all &= entry->second != kNoStack;
        calls[i].stack = entry->second;
    }
    return all;
}

}  // namespace millrace::diagnose
