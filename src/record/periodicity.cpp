#include "record/periodicity.h"

#include <algorithm>
#include <unordered_map>

namespace millrace::record {
namespace {

constexpr std::size_t kLeastCount = 3;    ///< rarer kinds say nothing about a period
constexpr std::size_t kSummedGaps = 4;    ///< a kind that comes that often per period still votes for it
constexpr std::size_t kCandidates = 48;   ///< lengths looked at closely
constexpr std::size_t kMostShift = 16;    ///< elements that may have come or gone within a period
constexpr std::size_t kShiftPart = 16;    ///< ... and at most this part of it
constexpr double kNearBest = 0.9;         ///< shorter lengths win within this share of the best: multiples match as well
constexpr double kLeastKindMatch = 0.25;  ///< of all kinds: a start-up with many kinds leaves no more
constexpr std::size_t kLeastRepeats = 3;
constexpr std::size_t kMostRehearsed = 20;  ///< steps; with more of them a window has seen enough
constexpr std::size_t kLeastGraphed = 20;   ///< steps behind them, twice as many at least, where those have fewer elements
constexpr std::size_t kOncePart = 4;        ///< of a step's kinds one in so many at least comes once in it

/// Where one kind of element, or of pair of neighbours, stands.
using Places = std::vector<std::size_t>;

std::uint64_t mixed(std::uint64_t value) {
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
}

std::vector<Places> kinds_of(std::span<const std::uint64_t> sequence, std::size_t least = kLeastCount) {
    std::unordered_map<std::uint64_t, std::size_t> numbers;
    std::vector<Places> kinds;
    const auto add = [&](std::uint64_t key, std::size_t place) {
        const auto [at, fresh] = numbers.try_emplace(key, kinds.size());
        if (fresh) kinds.emplace_back();
        kinds[at->second].push_back(place);
    };
    for (std::size_t place = 0; place < sequence.size(); ++place) {
        add(mixed(sequence[place]), place);
        if (place + 1 < sequence.size() && sequence[place] != sequence[place + 1])
            add(mixed(sequence[place] * 3 + mixed(sequence[place + 1])), place);
    }
    std::erase_if(kinds, [least](const Places& places) { return places.size() < least; });
    return kinds;
}

/// How far from its place a kind may come and still count: so far that chance alone would find it half the time at most.
std::size_t shift_of(const Places& places, std::size_t total, std::size_t length) {
    const std::size_t wanted = std::min(kMostShift, length / kShiftPart);
    const std::size_t room = total / (2 * places.size());
    return std::min(wanted, room > 0 ? (room - 1) / 2 : 0);
}

/// How well one kind repeats, 1 always, 0 no better than by chance. Absent when no occurrence is a period before the end.
std::optional<double> match_of(const Places& places, std::size_t total, std::size_t length) {
    const std::size_t shift = shift_of(places, total, length);
    std::size_t asked = 0, found = 0, next = 0;
    for (const std::size_t place : places) {
        const std::size_t wanted = place + length;
        if (wanted >= total) break;
        while (next < places.size() && places[next] + shift < wanted) ++next;
        ++asked;
        found += next < places.size() && places[next] <= wanted + shift ? 1 : 0;
    }
    if (asked == 0) return std::nullopt;
    const double rate = static_cast<double>(found) / static_cast<double>(asked);
    const double window = static_cast<double>(2 * shift + 1);
    const double chance = std::min(1.0, window * static_cast<double>(places.size()) / static_cast<double>(total));
    if (chance > 0.999) return rate;
    return std::max(0.0, (rate - chance) / (1 - chance));
}

double score_of(const std::vector<Places>& kinds, std::size_t total, std::size_t length) {
    double sum = 0;
    for (const Places& places : kinds) sum += match_of(places, total, length).value_or(0);
    return sum / static_cast<double>(kinds.size());
}

/// Lengths worth a closer look: distances at which kinds come again, most voted first.
std::vector<std::size_t> candidates_of(const std::vector<Places>& kinds, std::size_t total) {
    std::unordered_map<std::size_t, double> votes;
    for (const Places& places : kinds) {
        const double weight = 1.0 / static_cast<double>(places.size());
        for (std::size_t gaps = 1; gaps <= kSummedGaps; ++gaps)
            for (std::size_t index = gaps; index < places.size(); ++index) {
                const std::size_t distance = places[index] - places[index - gaps];
                if (distance * kLeastRepeats <= total) votes[distance] += weight;
            }
    }
    std::vector<std::pair<double, std::size_t>> order;
    order.reserve(votes.size());
    for (const auto& [distance, vote] : votes) order.emplace_back(-vote, distance);
    const std::size_t count = std::min(kCandidates, order.size());
    std::partial_sort(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(count), order.end());
    std::vector<std::size_t> lengths;
    for (std::size_t at = 0; at < count; ++at) lengths.push_back(order[at].second);
    std::ranges::sort(lengths);
    return lengths;
}

/// A shift lets neighbours of the true length match as well: the one at which most elements stand exactly.
Period sharpened(std::span<const std::uint64_t> sequence, std::size_t length) {
    const std::size_t around = std::min(kMostShift, length / kShiftPart);
    Period best{length, 0};
    for (std::size_t each = length - around; each <= length + around && each < sequence.size(); ++each) {
        std::size_t equal = 0;
        for (std::size_t at = 0; at + each < sequence.size(); ++at) equal += sequence[at] == sequence[at + each] ? 1 : 0;
        const double match = static_cast<double>(equal) / static_cast<double>(sequence.size() - each);
        if (match > best.match) best = {each, match};
    }
    return best;
}

/// Steps in a sequence, whatever its period is taken for: in a few of them a loop over layers returns better than they do.
std::size_t count_steps(std::span<const std::uint64_t> sequence) {
    std::vector<std::size_t> counts;
    for (const Places& places : kinds_of(sequence, 1)) counts.push_back(places.size());
    if (counts.empty()) return 0;
    const auto rare = counts.begin() + static_cast<std::ptrdiff_t>(counts.size() / kOncePart);
    std::nth_element(counts.begin(), rare, counts.end());
    return *rare;
}

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

std::optional<Period> find_period(std::span<const std::uint64_t> sequence) {
    const std::vector<Places> kinds = kinds_of(sequence);
    if (kinds.empty()) return std::nullopt;
    std::vector<Period> scored;
    double best = 0;
    for (const std::size_t length : candidates_of(kinds, sequence.size())) {
        scored.push_back({length, score_of(kinds, sequence.size(), length)});
        best = std::max(best, scored.back().match);
    }
    if (best < kLeastKindMatch) return std::nullopt;
    for (const Period& period : scored)
        if (period.match >= kNearBest * best) return sharpened(sequence, period.length);
    return std::nullopt;
}

std::size_t rehearsal_end(std::span<const std::uint64_t> sequence, std::span<const char> graphs) {
    if (graphs.size() != sequence.size()) return 0;
    const auto first = static_cast<std::size_t>(std::ranges::find(graphs, 1) - graphs.begin());
    if (first == graphs.size()) return 0;
    const auto has_graph = [&](std::size_t from, std::size_t count) {
        const auto part = graphs.subspan(from, std::min(count, graphs.size() - from));
        return std::ranges::find(part, 1) != part.end();
    };
    // What repeats is clearest behind the first of them, unless something else stands there.
    for (const std::size_t from : {first, sequence.size() / 2}) {
        const auto later = find_period(sequence.subspan(from));
        if (!later || !has_graph(from + (sequence.size() - from) / 2, later->length)) continue;
        std::size_t begin = from;
        while (begin > 0 && sequence[begin - 1] == sequence[begin - 1 + later->length]) --begin;
        const auto before = sequence.first(begin);
        const std::size_t rehearsed = count_steps(before);
        if (rehearsed > kMostRehearsed && find_period(before)) continue;
        const std::size_t graphed = (sequence.size() - begin) / later->length;
        if (begin > sequence.size() / 2 && graphed < std::max(kLeastGraphed, 2 * rehearsed)) continue;
        if (begin > 0 && !has_graph(0, begin)) return begin;
    }
    return 0;
}

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
