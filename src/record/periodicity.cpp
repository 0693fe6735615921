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
constexpr double kSteady = 0.7;           ///< of the elements of a stretch
constexpr double kFullPart = 0.9;         ///< of all places; those above have more kinds than a full period
constexpr std::size_t kLeastRepeats = 3;
constexpr std::size_t kMostRehearsed = 20;  ///< steps; with more of them a window has seen enough
constexpr std::size_t kLeastGraphed = 20;   ///< steps behind them, twice as many at least, where those have fewer elements
constexpr std::size_t kOncePart = 4;        ///< of a step's kinds one in so many at least comes once in it

/// Where one kind of element, or of pair of neighbours, stands.
struct Kind {
    std::vector<std::size_t> places;
    std::size_t size = 1;  ///< 2: a pair
};

std::uint64_t mixed(std::uint64_t value) {
    value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
    value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
    return value ^ (value >> 31);
}

std::vector<Kind> kinds_of(std::span<const std::uint64_t> sequence, bool with_pairs, std::size_t least = kLeastCount) {
    std::unordered_map<std::uint64_t, std::size_t> numbers;
    std::vector<Kind> kinds;
    const auto add = [&](std::uint64_t key, std::size_t place, std::size_t size) {
        const auto [at, fresh] = numbers.try_emplace(key, kinds.size());
        if (fresh) kinds.push_back({{}, size});
        kinds[at->second].places.push_back(place);
    };
    for (std::size_t place = 0; place < sequence.size(); ++place) {
        add(mixed(sequence[place]), place, 1);
        if (with_pairs && place + 1 < sequence.size() && sequence[place] != sequence[place + 1])
            add(mixed(sequence[place] * 3 + mixed(sequence[place + 1])), place, 2);
    }
    std::erase_if(kinds, [least](const Kind& kind) { return kind.places.size() < least; });
    return kinds;
}

/// How far from its place a kind may come and still count: so far that chance alone would find it half the time at most.
std::size_t shift_of(const Kind& kind, std::size_t total, std::size_t length) {
    const std::size_t wanted = std::min(kMostShift, length / kShiftPart);
    const std::size_t room = total / (2 * kind.places.size());
    return std::min(wanted, room > 0 ? (room - 1) / 2 : 0);
}

/// Calls `use(index, found)` for every place that has another a period later inside the sequence.
template <class Use>
void for_each_match(const Kind& kind, std::size_t total, std::size_t length, const Use& use) {
    const std::size_t shift = shift_of(kind, total, length);
    std::size_t next = 0;
    for (std::size_t index = 0; index < kind.places.size(); ++index) {
        const std::size_t wanted = kind.places[index] + length;
        if (wanted >= total) return;
        while (next < kind.places.size() && kind.places[next] + shift < wanted) ++next;
        use(index, next < kind.places.size() && kind.places[next] <= wanted + shift);
    }
}

/// How well one kind repeats, 1 always, 0 no better than by chance. Absent when no occurrence is a period before the end.
std::optional<double> match_of(const Kind& kind, std::size_t total, std::size_t length) {
    std::size_t asked = 0, found = 0;
    for_each_match(kind, total, length, [&](std::size_t, bool hit) {
        ++asked;
        found += hit ? 1 : 0;
    });
    if (asked == 0) return std::nullopt;
    const double rate = static_cast<double>(found) / static_cast<double>(asked);
    const double window = static_cast<double>(2 * shift_of(kind, total, length) + 1);
    const double chance = std::min(1.0, window * static_cast<double>(kind.places.size()) / static_cast<double>(total));
    if (chance > 0.999) return rate;
    return std::max(0.0, (rate - chance) / (1 - chance));
}

double score_of(const std::vector<Kind>& kinds, std::size_t total, std::size_t length) {
    double sum = 0;
    for (const Kind& kind : kinds) sum += match_of(kind, total, length).value_or(0);
    return sum / static_cast<double>(kinds.size());
}

/// Lengths worth a closer look: distances at which kinds come again, most voted first.
std::vector<std::size_t> candidates_of(const std::vector<Kind>& kinds, std::size_t total) {
    std::unordered_map<std::size_t, double> votes;
    for (const Kind& kind : kinds) {
        const double weight = 1.0 / static_cast<double>(kind.places.size());
        for (std::size_t gaps = 1; gaps <= kSummedGaps; ++gaps)
            for (std::size_t index = gaps; index < kind.places.size(); ++index) {
                const std::size_t distance = kind.places[index] - kind.places[index - gaps];
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
    for (const Kind& kind : kinds_of(sequence, true, 1)) counts.push_back(kind.places.size());
    if (counts.empty()) return 0;
    const auto rare = counts.begin() + static_cast<std::ptrdiff_t>(counts.size() / kOncePart);
    std::nth_element(counts.begin(), rare, counts.end());
    return *rare;
}

}  // namespace

std::optional<Period> find_period(std::span<const std::uint64_t> sequence) {
    const std::vector<Kind> kinds = kinds_of(sequence, true);
    if (kinds.empty()) return std::nullopt;
    std::vector<Period> scored;
    double best = 0;
    for (const std::size_t length : candidates_of(kinds, sequence.size())) {
        scored.push_back({length, score_of(kinds, sequence.size(), length)});
        best = std::max(best, scored.back().match);
    }
    if (best < kLeastKindMatch) return std::nullopt;
    for (const Period& period : scored) {
        if (period.match < kNearBest * best) continue;
        const Period exact = sharpened(sequence, period.length);
        if (!steady_stretches(sequence, exact.length).empty()) return exact;
    }
    return std::nullopt;
}

std::vector<Stretch> steady_stretches(std::span<const std::uint64_t> sequence, std::size_t length) {
    std::vector<Stretch> stretches;
    if (length == 0 || sequence.size() < kLeastRepeats * length) return stretches;
    // Sums from the start: elements that come again, and the same weighted so that each kind counts as much as any other.
    std::vector<std::uint32_t> hits(sequence.size() + 1);
    std::vector<double> weights(sequence.size() + 1);
    for (const Kind& kind : kinds_of(sequence, false))
        for_each_match(kind, sequence.size(), length, [&](std::size_t index, bool hit) {
            hits[kind.places[index] + 1] = hit ? 1 : 0;
            weights[kind.places[index] + 1] = hit ? 1.0 / static_cast<double>(kind.places.size()) : 0;
        });
    for (std::size_t at = 1; at < hits.size(); ++at) {
        hits[at] += hits[at - 1];
        weights[at] += weights[at - 1];
    }
    const auto weight = [&](std::size_t at) { return weights[at + length] - weights[at]; };
    std::vector<double> all;
    for (std::size_t at = 0; at + 2 * length <= sequence.size(); ++at) all.push_back(weight(at));
    const auto high = all.begin() + static_cast<std::ptrdiff_t>(kFullPart * static_cast<double>(all.size() - 1));
    std::nth_element(all.begin(), high, all.end());
    const double full = *high;

    // A place is steady when the period that begins there comes again, and has most of the kinds a period has: evaluation is
    // but a part of a step.
    const auto steady = [&](std::size_t at) {
        return static_cast<double>(hits[at + length] - hits[at]) >= kSteady * static_cast<double>(length) &&
               weight(at) >= kSteady * full;
    };
    const std::size_t stop = sequence.size() - 2 * length + 1;  // places behind have no whole period after the next
    for (std::size_t at = 0; at < stop;) {
        if (!steady(at)) {
            ++at;
            continue;
        }
        const std::size_t begin = at;
        while (at < stop && steady(at)) ++at;
        const std::size_t end = at - 1 + 2 * length;
        if (end - begin < kLeastRepeats * length) continue;
        // Elements of two stretches (they stand a few odd elements apart) make them one.
        if (!stretches.empty() && begin <= stretches.back().end)
            stretches.back().end = end;
        else
            stretches.push_back({begin, end});
    }
    return stretches;
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

}  // namespace millrace::record
