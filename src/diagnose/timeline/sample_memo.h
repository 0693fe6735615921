#pragma once
// What a sample says by its stack, state and wait alone, told once for each of these: names of files are searched for that, and a
// day has millions of samples.

#include <cstdint>
#include <map>
#include <tuple>

#include "diagnose/timeline/timeline.h"

namespace millrace::diagnose {

template <class Told>
class SampleMemo {
public:
    /// `tell` is asked for the first sample of its like.
    template <class Tell>
    const Told& of(const Sample& sample, const Tell& tell) {
        const auto [found, fresh] = known_.try_emplace({sample.stack, sample.wait, sample.state});
        if (fresh) found->second = tell(sample);
        return found->second;
    }

private:
    std::map<std::tuple<std::uint32_t, std::uint32_t, char>, Told> known_;
};

}  // namespace millrace::diagnose
