"""Does the policy keep the contract? Raises with the first thing that is broken."""

from mine import NearNotCrowded

from edgewise.testing import check_policy

check_policy(NearNotCrowded)
print("NearNotCrowded keeps the contract")
