#pragma once
// What a run forgets that learns domains one after the other: the loss of every domain after every stage, how far it has risen
// since the domain was learned, and whether groups of members differ in that.

#include <cstdint>
#include <string>
#include <vector>

namespace millrace::models {

/// Losses of all domains after an epoch, in nats per token: [member][domain].
struct DomainLosses {
    std::uint32_t epoch = 0;  ///< counted from 1
    std::vector<std::vector<double>> losses;
};

/// Domains that are learned one after the other, and members that are compared. Stage s is the learning of domain s.
struct Course {
    std::vector<std::string> domains;
    std::uint32_t epochs_each = 1;
    std::string compare;                ///< key of the recipe whose values are the groups; empty: all members are one
    std::vector<std::string> groups;    ///< by member
    std::vector<std::uint64_t> seeds;   ///< by member
    std::vector<std::string> controls;  ///< groups that the others are compared with
    std::vector<DomainLosses> epochs;   ///< so far

    /// After the last epoch of a stage; null when the run did not get there.
    [[nodiscard]] const DomainLosses* after(std::size_t stage) const;
    /// Whether the last stage has ended.
    [[nodiscard]] bool complete() const { return after(domains.size() - 1) != nullptr; }
    /// How far the loss of a domain has risen from the end of its own stage to the end of the last. Needs complete().
    [[nodiscard]] double forgetting(std::size_t member, std::size_t domain) const;
    /// Over all domains but the last, of which nothing can be forgotten yet.
    [[nodiscard]] double mean_forgetting(std::size_t member) const;
};

/// A mean over seeds and its standard error, which is NaN for a single value.
struct Estimate {
    double mean = 0, error = 0;
    std::size_t seeds = 0;
    /// -1: below zero by more than two standard errors, 1: above, 0: neither or unknown.
    [[nodiscard]] int sign() const;
};
Estimate estimate(const std::vector<double>& values);

struct GroupForgetting {
    std::string name;
    std::vector<std::vector<Estimate>> losses;  ///< [stage][domain], of the stages that have ended
    std::vector<Estimate> by_domain;            ///< of all but the last; empty unless the course is complete
    Estimate mean;                              ///< over those domains
    Estimate final_loss;                        ///< mean over all domains after the last stage
};

/// Differences, group minus control. Members with the same seed are compared with each other where all have such a partner.
struct Comparison {
    std::string group, control;
    Estimate forgetting, final_loss;
    bool any = true;  ///< one of the two has forgotten something, beyond two standard errors

    /// Of the difference in forgetting, as Estimate::sign(); 0 where nothing was forgotten.
    [[nodiscard]] int verdict() const { return any ? forgetting.sign() : 0; }
    /// "new forgets less than old: 0.120 +- 0.030 nats (3 seeds); ..."
    [[nodiscard]] std::string conclusion() const;
};

struct Forgetting {
    std::vector<GroupForgetting> groups;  ///< in the order of their first members
    std::vector<Comparison> comparisons;  ///< of every group with every control; none unless the course is complete
};
Forgetting measure_forgetting(const Course& course);

/// Losses and perplexities by stage and domain, forgetting by group, and a line for every comparison. Several lines.
std::string forgetting_text(const Course& course, const Forgetting& measured);

/// continual.json (docs/continual.md). Losses that are not finite are null.
std::string forgetting_json(const Course& course, const Forgetting& measured);

/// The loss of every domain over the epochs: a panel for each domain, a line for each group. Self-contained SVG.
std::string forgetting_svg(const Course& course, const Forgetting& measured);

}  // namespace millrace::models
