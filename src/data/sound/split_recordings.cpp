#include "data/sound/split_recordings.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/philox.h"
#include "base/units.h"

namespace millrace::data {

base::Result<Shares> parse_shares(const std::string& text) {
    const base::Error wrong{
        fmt::format("--split {}: three shares of sum 1 would be right, the first above 0: --split 0.7,0.2,0.1", text)};
    Shares shares{};
    std::string_view rest = text;
    for (std::size_t part = 0; part < kSoundParts; ++part) {
        const std::size_t comma = rest.find(',');
        if ((comma == std::string_view::npos) != (part + 1 == kSoundParts)) return wrong;
        const std::string_view word = base::trimmed(rest.substr(0, comma));
        const auto [end, problem] = std::from_chars(word.data(), word.data() + word.size(), shares[part]);
        if (problem != std::errc{} || end != word.data() + word.size() || !(shares[part] >= 0)) return wrong;
        rest = comma == std::string_view::npos ? std::string_view{} : rest.substr(comma + 1);
    }
    if (!(shares[0] > 0) || !(std::abs(shares[0] + shares[1] + shares[2] - 1) < 1e-6)) return wrong;
    return shares;
}

std::array<std::uint32_t, kSoundParts> share_out(std::uint32_t count, const Shares& shares) {
    std::array<std::uint32_t, kSoundParts> given{};
    std::uint32_t left = count;
    for (std::size_t part = 0; part < kSoundParts; ++part) {
        given[part] = std::min(left, static_cast<std::uint32_t>(std::floor(count * shares[part] + 1e-9)));
        left -= given[part];
    }
    for (; left > 0; --left) {
        std::size_t most = 0;
        for (std::size_t part = 1; part < kSoundParts; ++part)
            if (count * shares[part] - given[part] > count * shares[most] - given[most] + 1e-9) most = part;
        ++given[most];
    }
    for (std::size_t part = 0; part < kSoundParts; ++part) {
        if (given[part] > 0 || shares[part] == 0) continue;
        // From the part that has most, as long as it keeps one; training is served first, so it gives last.
        const auto largest = static_cast<std::size_t>(std::ranges::max_element(given) - given.begin());
        const std::uint32_t kept = part < largest ? 0 : 1;
        if (given[largest] <= kept) continue;
        --given[largest];
        ++given[part];
    }
    return given;
}

std::array<std::vector<std::uint32_t>, kSoundParts> split_recordings(std::span<const std::uint32_t> labels, std::uint32_t classes,
                                                                     const Shares& shares, std::uint64_t seed) {
    std::vector<std::vector<std::uint32_t>> by_class(classes);
    for (std::uint32_t i = 0; i < labels.size(); ++i) by_class[labels[i]].push_back(i);
    std::array<std::vector<std::uint32_t>, kSoundParts> ordered, mixed;
    for (std::uint32_t label = 0; label < classes; ++label) {
        const auto count = static_cast<std::uint32_t>(by_class[label].size());
        const base::Shuffle order = base::make_shuffle(seed, label + kSoundParts, count);
        const auto given = share_out(count, shares);
        std::uint32_t position = 0;
        for (std::size_t part = 0; part < kSoundParts; ++part)
            for (std::uint32_t i = 0; i < given[part]; ++i)
                ordered[part].push_back(by_class[label][base::shuffled_index(order, position++)]);
    }
    for (std::uint32_t part = 0; part < kSoundParts; ++part) {
        const auto count = static_cast<std::uint32_t>(ordered[part].size());
        const base::Shuffle order = base::make_shuffle(seed, part, count);
        for (std::uint32_t i = 0; i < count; ++i) mixed[part].push_back(ordered[part][base::shuffled_index(order, i)]);
    }
    return mixed;
}

}  // namespace millrace::data
