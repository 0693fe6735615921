#pragma once
// Data that is learned in stages: one domain after the other, each for as many epochs, all scored after every epoch.

#include <array>
#include <cstdint>
#include <string>

#include "data/batch_source.h"

namespace millrace::data {

/// The samples of the validation and of the test part lie domain by domain, in the order in which the domains are learned.
struct Domain {
    std::string name;
    std::array<std::int32_t, kPartCount> samples{};  ///< by part; of train: what an epoch may draw from

    [[nodiscard]] std::int32_t count(Part part) const { return samples[index_of(part)]; }
};

}  // namespace millrace::data
