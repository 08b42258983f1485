"""Join what several topology sources say: hosts, fabric, trees and places, conflicts as findings."""
