#include "diagnose/causes/causes.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <map>
#include <numeric>

namespace millrace::diagnose {
namespace {

constexpr double kClearlyMore = 1.1;     ///< a broader cause must return that much more than a specific one to come first
constexpr double kNothing = 0.1;         ///< of its threshold: such a cause is not asked again
constexpr double kNearlyAll = 0.9;       ///< of what all return together
constexpr double kAdditive = 0.8;        ///< a cause that returns so much of its part alone is not hidden
constexpr double kMostlyHidden = 0.5;    ///< of what a group returns, that none of them returns alone
constexpr std::size_t kMostCauses = 32;  ///< each is played several times

using Group = std::vector<const Cause*>;

bool contains(const Group& group, const Cause* cause) { return std::ranges::find(group, cause) != group.end(); }

Group without(Group group, const Cause* cause) {
    std::erase(group, cause);
    return group;
}

class Chooser {
public:
    Chooser(const Study& study, const std::vector<Cause>& causes) : study_(study), current_(study.base_ms) {
        for (const Cause& cause : causes) {
            if (left_.size() >= kMostCauses && cause.unseen_ms <= 0) continue;
            left_.push_back(&cause);
            unseen_ += cause.unseen_ms;
        }
        current_ += unseen_;
    }

    Choice run() {
        if (left_.empty() || gain_of(left_) < least(left_)) return {};
        leave_out_idle_ones();
        for (const Cause* cause : left_)
            if (cause->breadth != Breadth::kRest) alone_.emplace_back(cause, gain_of({cause}));
        while (!left_.empty()) {
            const Group best = best_group();
            if (best.empty()) break;
            enter(best);
        }
        for (const auto& [cause, alone] : alone_)
            if (contains(left_, cause) && alone >= cause->threshold_ms)
                choice_.gone.push_back(fmt::format("{} ({:.2f} ms)", name_of(cause->kind), alone));
        return std::move(choice_);
    }

private:
    double step_with(const Group& group) const {
        std::vector<const Cure*> cures;
        double unseen = unseen_;
        for (const Group* const each : {&chosen_, &group})
            for (const Cause* cause : *each) {
                cures.push_back(&cause->cure);
                unseen -= cause->unseen_ms;
            }
        return study_.step_with(cures) + unseen;
    }
    double gain_of(const Group& group) const {
        if (group.empty()) return 0;
        auto [known, fresh] = known_.try_emplace(group, 0.0);
        if (fresh) known->second = current_ - step_with(group);
        return known->second;
    }

    double one_by_one(const Group& group) const {
        double sum = 0;
        for (const Cause* cause : group) sum += std::max(0.0, gain_of({cause}));
        return sum;
    }

    static double least(const Group& group) { return (*std::ranges::min_element(group, {}, &Cause::threshold_ms))->threshold_ms; }

    Group of_breadth(Breadth breadth) const {
        Group group;
        for (const Cause* cause : left_)
            if (cause->breadth == breadth) group.push_back(cause);
        return group;
    }

    /// Calls that return nothing alone, and nothing when all others are cured.
    void leave_out_idle_ones() {
        const Group calls = of_breadth(Breadth::kCall);
        if (calls.size() < 2) return;
        const double all = gain_of(calls);
        for (const Cause* cause : calls) {
            const double nothing = kNothing * cause->threshold_ms;
            if (gain_of({cause}) < nothing && all - gain_of(without(calls, cause)) < nothing) std::erase(left_, cause);
        }
    }

    /// What returns most now: one cause, or several that hide each other. Empty: nothing that is worth it.
    Group best_group() {
        Group best;
        double most = 0;
        const auto offer = [&](const Group& group, double gain, double factor) {
            if (gain >= least(group) && gain > factor * most) best = group, most = gain;
        };
        const Group calls = of_breadth(Breadth::kCall), works = of_breadth(Breadth::kWork);
        Group worthwhile;
        for (const Cause* cause : calls) {
            const double gain = gain_of({cause});
            offer({cause}, gain, 1);
            if (gain >= cause->threshold_ms) worthwhile.push_back(cause);
        }
        Group hidden = hidden_in(calls, best.empty());
        if (hidden.size() < 2) {
            Group all = calls;
            all.insert(all.end(), works.begin(), works.end());
            hidden = hidden_in(all, false);
        }
        if (hidden.size() > 1) {
            offer(hidden, gain_of(hidden), kClearlyMore);
            for (const Cause* cause : hidden)
                if (!contains(worthwhile, cause)) worthwhile.push_back(cause);
        }
        const double by_calls = most;
        for (const Cause* cause : works) {
            const double gain = gain_of({cause});
            if (gain > kClearlyMore * by_calls) offer({cause}, gain, 1);
            if (gain >= cause->threshold_ms) worthwhile.push_back(cause);
        }
        for (const Cause* cause : of_breadth(Breadth::kRest))
            if (worthwhile.empty() && std::ranges::count(chosen_, Breadth::kWork, &Cause::breadth) == 0)
                offer({cause}, gain_of({cause}), 1);
        for (const Cause* cause : of_breadth(Breadth::kLaunches)) {
            // Launching looks bad wherever the host is made to wait: it is to blame for what it costs without that.
            Group others = calls;
            for (const Cause* other : worthwhile)
                if (!contains(others, other)) others.push_back(other);
            Group with = others;
            with.push_back(cause);
            offer({cause}, std::min(gain_of({cause}), gain_of(with) - gain_of(others)), 1);
        }
        return best;
    }

    /// The fewest that return nearly what all do, without those that return their part by themselves; empty where little is
    /// hidden, unless none of them is worth it by itself (`scattered`).
    Group hidden_in(const Group& calls, bool scattered) const {
        if (calls.size() < 2) return {};
        const double all = gain_of(calls);
        if (all - (scattered ? 0 : one_by_one(calls)) < least(calls)) return {};
        Group group;
        for (const Cause* cause : calls) {
            group.push_back(cause);
            if (gain_of(group) >= kNearlyAll * all) break;
        }
        const double together = gain_of(group);
        for (const Cause* cause : Group(group)) {
            const Group fewer = without(group, cause);
            if (!fewer.empty() && gain_of(fewer) >= (kNearlyAll - 0.05) * together) group = fewer;
        }
        for (const Cause* cause : Group(group)) {
            if (group.size() < 2 || scattered) break;
            const double part = gain_of(group) - gain_of(without(group, cause));
            if (gain_of({cause}) >= kAdditive * part) group = without(group, cause);
        }
        const double gain = gain_of(group);
        return gain >= least(group) && (scattered || gain - one_by_one(group) >= kMostlyHidden * gain) ? group : Group{};
    }

    /// Parts of a group that are findings of their own: waits together, everything else by itself.
    static std::vector<Group> parts_of(const Group& group) {
        std::vector<Group> parts(1);
        for (const Cause* cause : group) (cause->site ? parts.front() : parts.emplace_back()).push_back(cause);
        if (parts.front().empty()) parts.erase(parts.begin());
        return parts;
    }

    /// What each part adds, as a mean of what it returns when it is cured first and when it is cured last: parts that hide each
    /// other share what they hide. What more than two leave over is shared equally.
    std::vector<double> shared(const Group& group, const std::vector<Group>& parts, double total) const {
        std::vector<double> shares;
        for (const Group& part : parts) {
            Group others = group;
            for (const Cause* cause : part) std::erase(others, cause);
            shares.push_back((gain_of(part) + total - gain_of(others)) / 2);
        }
        const double left = total - std::accumulate(shares.begin(), shares.end(), 0.0);
        for (double& share : shares) share += left / static_cast<double>(shares.size());
        return shares;
    }

    void enter(const Group& group) {
        const double after = step_with(group);
        const auto parts = parts_of(group);
        auto shares = shared(group, parts, current_ - after);
        // A cure that returns more once another was made comes after it, and counts no more than that one.
        for (double& share : shares) share = std::min(share, lowest_);
        for (double share : shares) lowest_ = std::min(lowest_, share);
        for (std::size_t i = 0; i < parts.size(); ++i) {
            Judgement verdict{shares[i], current_, after, {}};
            for (const Cause* cause : parts[i])
                if (cause->site) verdict.sites.push_back(cause->site);
            Finding finding = parts[i].front()->finding(verdict);
            if (!chosen_.empty()) finding.evidence += " This is what remains once what costs more is cured.";
            if (parts.size() > 1) finding.evidence += hidden_by(parts, i);
            choice_.findings.push_back(std::move(finding));
        }
        for (const Cause* cause : group) {
            choice_.cures.push_back(&cause->cure);
            std::erase(left_, cause);
            // A step that is launched as a whole hides nearly all other work, and many a program cannot be made to do that: what
            // else costs is told of as things are.
            if (cause->breadth == Breadth::kLaunches) return;
            chosen_.push_back(cause);
        }
        current_ = after;
        known_.clear();
    }

    static std::string hidden_by(const std::vector<Group>& parts, std::size_t part) {
        std::vector<std::string_view> others;
        for (std::size_t i = 0; i < parts.size(); ++i)
            if (i != part) others.push_back(name_of(parts[i].front()->kind));
        return fmt::format(" It hides behind {} and the other way round: only both cures together return this.",
                           fmt::join(others, ", "));
    }

    const Study& study_;
    Group left_, chosen_;
    std::vector<std::pair<const Cause*, double>> alone_;
    mutable std::map<Group, double> known_;                    ///< gains, after the cures so far
    double current_ = 0;                                       ///< step after the cures so far
    double unseen_ = 0;                                        ///< of it before any of them, what no model shows
    double lowest_ = std::numeric_limits<double>::infinity();  ///< cost of findings so far
    Choice choice_;
};

}  // namespace

Choice choose(const Study& study, const std::vector<Cause>& causes) { return Chooser(study, causes).run(); }

}  // namespace millrace::diagnose
