#include "search/sampler.h"

#include <fmt/core.h>
#include <memory>

#include <algorithm>
#include <limits>

#include "search/parzen.h"
#include "search/stream.h"

namespace millrace::search {
namespace {

constexpr size_t kMostGood = 25;

class TpeSampler final : public Sampler {
public:
    TpeSampler(Space space, const SamplerOptions& options) : space_(std::move(space)), options_(options) {}

    [[nodiscard]] std::vector<Configuration> ask(std::span<const Trial> trials, int64_t first, int64_t count) const override {
        const std::vector<size_t> order = best_first(trials);
        const bool is_startup = order.size() < static_cast<size_t>(options_.startup);
        std::vector<Configuration> out;
        if (is_startup) {
            for (int64_t i = 0; i < count; ++i) out.push_back(random_configuration(space_, options_.seed, first + i));
            return out;
        }
        std::vector<bool> is_good(trials.size(), false);
        const size_t good_count = std::min((order.size() + 9) / 10, kMostGood);
        for (size_t i = 0; i < good_count; ++i) is_good[order[i]] = true;
        std::vector<Configuration> good, bad;
        for (size_t i = 0; i < trials.size(); ++i) (is_good[i] ? good : bad).push_back(trials[i].configuration);
        const ParzenEstimator of_good(space_, good);
        for (int64_t i = 0; i < count; ++i) {
            out.push_back(improve(of_good, ParzenEstimator(space_, bad), first + i));
            bad.push_back(out.back());
        }
        return out;
    }

private:
    [[nodiscard]] Configuration improve(const ParzenEstimator& good, const ParzenEstimator& bad, int64_t number) const {
        Stream stream(options_.seed, number, Purpose::tpe);
        Configuration best;
        double best_score = -std::numeric_limits<double>::infinity();
        for (int64_t i = 0; i < options_.candidates; ++i) {
            Configuration candidate = good.sample(stream);
            const double score = good.log_density(candidate) - bad.log_density(candidate);
            if (!best.empty() && score <= best_score) continue;
            best = std::move(candidate);
            best_score = score;
        }
        return best;
    }

    Space space_;
    SamplerOptions options_;
};

}  // namespace

base::Result<std::unique_ptr<Sampler>> make_tpe_sampler(const Space& space, const SamplerOptions& options) {
    if (options.startup < 1 || options.candidates < 1)
        return base::Error{fmt::format("the tpe sampler needs at least one startup trial and one candidate, not {} and {}",
                                       options.startup, options.candidates)};
    return std::unique_ptr<Sampler>{std::make_unique<TpeSampler>(space, options)};
}

}  // namespace millrace::search
