#include "base/nearest.h"

#include <algorithm>
#include <vector>

namespace millrace::base {
namespace {

constexpr size_t kLongest = 128;  // no valid name is longer; hostile input must not cost quadratic time

std::string_view last_part(std::string_view name) {
    const size_t dot = name.rfind('.');
    return dot == std::string_view::npos ? name : name.substr(dot + 1);
}

}  // namespace

size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<size_t> before_previous, previous(b.size() + 1), row(b.size() + 1);
    for (size_t j = 0; j <= b.size(); ++j) previous[j] = j;
    for (size_t i = 1; i <= a.size(); ++i) {
        row[0] = i;
        for (size_t j = 1; j <= b.size(); ++j) {
            const size_t substitution = previous[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
            row[j] = std::min({previous[j] + 1, row[j - 1] + 1, substitution});
            const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
            if (swapped) row[j] = std::min(row[j], before_previous[j - 2] + 1);
        }
        before_previous = previous;
        std::swap(previous, row);
    }
    return previous[b.size()];
}

std::string nearest_name(std::string_view word, std::span<const std::string> candidates) {
    if (word.empty() || word.size() > kLongest) return {};
    const std::string* best = nullptr;
    size_t best_distance = std::max<size_t>(1, word.size() / 3) + 1;
    for (const std::string& candidate : candidates) {
        size_t distance = edit_distance(word, candidate);
        // A right name in the wrong table, or without its table, is one slip, not many.
        const bool same_key = last_part(word) == last_part(candidate);
        if (same_key) distance = std::min<size_t>(distance, 1);
        if (distance < best_distance) {
            best = &candidate;
            best_distance = distance;
        }
    }
    return best == nullptr ? std::string{} : *best;
}

}  // namespace millrace::base
