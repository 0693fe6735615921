#include <algorithm>
#include <unordered_map>

#include "record/periodicity.h"

namespace millrace::record {
namespace {

/// Hash of `length` elements from each place on (fewer at the end): differences of one running polynomial.
std::vector<std::uint64_t> grams_of(std::span<const std::uint64_t> sequence, std::size_t length) {
    constexpr std::uint64_t kBase = 0x9e3779b97f4a7c15;
    const std::size_t count = sequence.size();
    std::vector<std::uint64_t> running(count + 1, 0), power(count + 1, 1), grams(count);
    for (std::size_t i = 0; i < count; ++i) {
        running[i + 1] = running[i] * kBase + (sequence[i] ^ (sequence[i] >> 31)) * 0xbf58476d1ce4e5b9 + 1;
        power[i + 1] = power[i] * kBase;
    }
    for (std::size_t i = 0; i < count; ++i) {
        const std::size_t end = std::min(i + length, count);
        grams[i] = running[end] - running[i] * power[end - i];
    }
    return grams;
}

struct Place {
    double weight = 0;
    std::size_t times = 0, regular = 0, odd = 0, last = 0;  ///< distances that are a period, and others
};

/// What also comes elsewhere (in the batches of an evaluation), or misses steps, marks them less well; weight decides among
/// equals.
std::optional<std::uint64_t> best_of(const std::unordered_map<std::uint64_t, Place>& places) {
    std::size_t most = 0, least_odd = ~std::size_t{0};
    for (const auto& [gram, place] : places) most = std::max(most, place.regular);
    const auto marks = [&](const Place& place) { return place.times >= 2 && place.regular + place.regular / 20 >= most; };
    for (const auto& [gram, place] : places)
        if (marks(place)) least_odd = std::min(least_odd, place.odd);
    std::optional<std::uint64_t> chosen;
    const Place* best = nullptr;
    for (const auto& [gram, place] : places) {
        if (!marks(place) || place.odd > least_odd + most / 50) continue;
        if (!best || place.weight > best->weight || (place.weight == best->weight && place.last < best->last))
            chosen = gram, best = &place;
    }
    return chosen;
}

}  // namespace

std::vector<std::size_t> find_starts(std::span<const std::uint64_t> sequence, Period period, std::span<const double> weight) {
    const std::size_t length = period.length;
    if (length == 0 || sequence.size() < 2 * length) return {};
    // Where two periods in a row agree best: there the steps are steps.
    std::size_t agree = 0, best_agree = 0, reference = 0;
    for (std::size_t i = 0; i + length < sequence.size(); ++i) {
        agree += sequence[i] == sequence[i + length] ? 1 : 0;
        if (i >= length) agree -= sequence[i - length] == sequence[i] ? 1 : 0;
        if (i + 1 >= length && agree > best_agree) best_agree = agree, reference = i + 1 - length;
    }
    for (std::size_t gram : {std::size_t{1}, std::size_t{4}, std::size_t{16}, length}) {
        if (gram > length) continue;
        const auto grams = grams_of(sequence, gram);
        std::unordered_map<std::uint64_t, std::size_t> in_period;
        for (std::size_t i = reference; i < reference + length; ++i) ++in_period[grams[i]];
        std::unordered_map<std::uint64_t, Place> places;
        for (std::size_t i = 0; i + gram <= sequence.size(); ++i) {
            auto found = in_period.find(grams[i]);
            if (found == in_period.end() || found->second != 1) continue;
            Place& place = places[grams[i]];
            if (i < weight.size()) place.weight += weight[i];
            if (place.times++ > 0) (i - place.last == length ? place.regular : place.odd) += 1;
            place.last = i;
        }
        const auto chosen = best_of(places);
        if (!chosen) continue;
        std::vector<std::size_t> starts;
        for (std::size_t i = 0; i + gram <= sequence.size(); ++i)
            if (grams[i] == *chosen) starts.push_back(i);
        return starts;
    }
    return {};
}

}  // namespace millrace::record
