#include "ops/rewrite.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "ops/sequence/sequence.h"

namespace millrace::ops {
namespace {

constinit const Rewrite* newest_rewrite = nullptr;

/// A static library's object is linked only where another one uses it: rewrites() asks for those of folders without operators.
const Rewrite* const kNamed[] = {&sequence_forward_rewrite::kRewrite, &sequence_backward_rewrite::kRewrite};

/// Whether each record that is taken could as well stand where `to` does.
bool can_move(const Match& match, const Window& window, std::size_t to) {
    for (const std::size_t taken : match.records)
        for (std::size_t between = std::min(taken, to) + 1; between < std::max(taken, to); ++between)
            if (!std::ranges::binary_search(match.records, between) && depend(window[taken], window[between])) return false;
    return true;
}

}  // namespace

std::optional<std::size_t> Window::next_reader(const tensor::Operand& o, std::size_t after) const {
    const auto reader = uses_->next_reader(o, number(after));
    const auto found = reader ? std::ranges::find(numbers_, *reader) : numbers_.end();
    if (found == numbers_.end()) return std::nullopt;
    return static_cast<std::size_t>(found - numbers_.begin());
}

Match Match::first(std::size_t count, std::vector<Output> inner) {
    Match match{std::vector<std::size_t>(count), std::move(inner)};
    std::iota(match.records.begin(), match.records.end(), std::size_t{0});
    return match;
}

Rewrite::Rewrite(const RewriteTraits& traits) : RewriteTraits(traits), next(newest_rewrite) { newest_rewrite = this; }

std::vector<const Rewrite*> rewrites() {
    std::vector<const Rewrite*> all;
    for (const Rewrite* rewrite = newest_rewrite; rewrite != nullptr; rewrite = rewrite->next) all.push_back(rewrite);
    for (const Rewrite* named : kNamed)
        MILLRACE_ASSERT(std::ranges::find(all, named) != all.end(), "a rewrite is not registered");
    std::ranges::sort(all, [](const Rewrite* a, const Rewrite* b) {
        return a->priority != b->priority ? a->priority > b->priority : std::strcmp(a->name, b->name) < 0;
    });
    return all;
}

std::vector<std::string> rewrite_names() {
    std::vector<std::string> names;
    for (const Rewrite* rewrite : rewrites())
        if (names.empty() || names.back() != rewrite->name) names.emplace_back(rewrite->name);
    return names;
}

bool is_off(const Rewrite& rewrite, const std::vector<std::string>& off) {
    return std::ranges::any_of(off, [&](const std::string& name) { return name == "all" || name == rewrite.name; });
}

Placement place(const Match& match, const Window& window) {
    const std::size_t last = match.records.back();
    const auto operand = [&](const Output& output) -> const tensor::Operand& {
        return window[match.records[output.record]][output.slot];
    };
    // Read by a record between them it could not be moved; those behind the last one are asked for here.
    for (const Output& output : match.inner)
        if (window.uses().outlives(operand(output), window.number(last))) return {};
    for (const Output& output : match.unwritten)
        if (window.uses().is_read(operand(output), window.number(last))) return {};
    if (can_move(match, window, match.records.front())) return {true, false};
    return {can_move(match, window, last), true};
}

}  // namespace millrace::ops
